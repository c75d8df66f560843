"""Upstream's own dispatch handler, fed with batches of events by hand.

Londiste 3.12 no longer calls the part of its handler that looks at events, and asks for a hash key
that it does not use. So that part is called here, in one process of Debian's Python for all tables,
with events and batches as Londiste hands them over. A new handler for each batch, as after a
restart.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

PYTHON = "/usr/bin/python3"
_PROGRAM = """
import datetime, json, sys, types
import psycopg2, psycopg2.extras, skytools
import londiste.handlers.dispatch as upstream
import londiste.handlers.shard as shard
told = json.load(sys.stdin)

class Clock(datetime.datetime):
    @classmethod
    def now(cls):
        return cls.fromisoformat(told["now"])

upstream.datetime = types.SimpleNamespace(datetime=Clock)
shard.ShardHandler.__init__ = lambda self, *args: super(shard.ShardHandler, self).__init__(*args)
classes = {c.handler_name: c for c in upstream.__londiste_handlers__}

class Event:
    def __init__(self, table, kind, row, time):
        self.ev_time = datetime.datetime.fromisoformat(time)
        self.type = self.ev_type = kind
        self.data = self.ev_data = skytools.db_urlencode(row)
        self.ev_extra1 = table

db = psycopg2.connect(told["connstr"])
curs = db.cursor(cursor_factory=psycopg2.extras.DictCursor)
curs.execute("set lock_timeout = '60s'; set session_replication_role = replica")
db.commit()
for batch in told["batches"]:
    for table, (name, args) in told["tables"].items():
        handler = classes[name](table, args, table)
        handler.batch_info = {"batch_end": datetime.datetime.fromisoformat(batch["end"])}
        handler.dst_curs = curs
        for kind, row, time in batch["events"]:
            handler._process_event(Event(table, kind, row, time), None, None)
        handler.finish_batch(None, curs)
    db.commit()
db.close()
"""


def run_upstream(
    connstr: str,
    tables: dict[str, tuple[str, dict[str, str]]],
    batches: list[dict[str, Any]],
    now: str,
) -> None:
    """Let upstream's handlers (name and arguments by table) apply batches: `end`, and `events` as
    type, row and time. `now` is what their clock shows."""
    told = {"connstr": connstr, "tables": tables, "batches": batches, "now": now}
    done = subprocess.run(
        [PYTHON, "-c", _PROGRAM], input=json.dumps(told), text=True, capture_output=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def is_there() -> bool:
    """Can upstream's handler be run here?"""
    try:
        text = "import psycopg2, londiste.handlers.dispatch"
        done = subprocess.run([PYTHON, "-c", text], capture_output=True, check=False, timeout=60)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
