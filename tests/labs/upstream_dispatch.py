"""Upstream's own dispatch handler, fed with events by hand.

Londiste 3.12 no longer calls the part of its handler that looks at events, and asks for a hash key
that it does not use. So that part is called here, in a process of Debian's Python, with events and
batches as Londiste hands them over.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

PYTHON = "/usr/bin/python3"
_PROGRAM = """
import datetime, json, sys
import psycopg2, psycopg2.extras, skytools
import londiste.handlers.dispatch as upstream
told = json.load(sys.stdin)
db = psycopg2.connect(told["connstr"])
curs = db.cursor(cursor_factory=psycopg2.extras.DictCursor)
import londiste.handlers.shard as shard
shard.ShardHandler.__init__ = lambda self, *args: super(shard.ShardHandler, self).__init__(*args)
classes = {c.handler_name: c for c in upstream.__londiste_handlers__}

class Event:
    def __init__(self, fields):
        self.ev_time = datetime.datetime.fromisoformat(fields["time"])
        self.type = self.ev_type = fields["type"]
        self.data = self.ev_data = skytools.db_urlencode(fields["row"])
        self.ev_extra1 = told["table"]

for batch in told["batches"]:
    handler = classes[told["handler"]](told["table"], told["args"], told["table"])
    end = datetime.datetime.fromisoformat(batch["end"])
    handler.batch_info = {"batch_end": end}
    handler.dst_curs = curs
    for event in batch["events"]:
        handler._process_event(Event(event), None, None)
    handler.finish_batch(None, curs)
    db.commit()
"""


def run_upstream(
    connstr: str, table: str, handler: str, args: dict[str, str], batches: list[dict[str, Any]]
) -> None:
    """Let upstream's handler apply batches: `end` and `events` (`type`, `row`, `time`)."""
    words = {
        "connstr": connstr, "table": table, "handler": handler, "args": args, "batches": batches,
    }  # fmt: skip
    subprocess.run(
        [PYTHON, "-c", _PROGRAM], input=json.dumps(words), text=True, check=True, timeout=300
    )


def is_there() -> bool:
    """Can upstream's handler be run here?"""
    try:
        text = "import psycopg2, londiste.handlers.dispatch"
        done = subprocess.run([PYTHON, "-c", text], capture_output=True, check=False)
        return done.returncode == 0
    except OSError:
        return False
