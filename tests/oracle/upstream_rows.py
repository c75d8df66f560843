"""Upstream's own handlers that apply events, fed with batches of events by hand.

One process of Debian's Python for all tables, with events and batches as Londiste hands them over;
a TRUNCATE is done as its worker does it. A new handler for each batch, as after a restart.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

PYTHON = "/usr/bin/python3"
_PROGRAM = """
import datetime, json, sys, types
import psycopg2, psycopg2.extras, skytools
import londiste.handler, londiste.handlers.bulk, londiste.handlers.qtable
import londiste.handlers.shard, londiste.handlers.vtable
told = json.load(sys.stdin)
handlers = londiste.handlers
classes = {c.handler_name: c for m in (handlers.bulk, handlers.qtable, handlers.shard,
           handlers.vtable) for c in m.__londiste_handlers__}
classes["londiste"] = londiste.handler.TableHandler
handlers.shard._SHARD_HASH_FUNC = "public.hash_of"
handlers.shard._SHARD_INFO_SQL = "select nr, mask, count from shard_info"

def as_event(row):
    row = dict(row, ev_time=datetime.datetime.fromisoformat(row["ev_time"]), ev_retry=None)
    return types.SimpleNamespace(**row, **{name[3:]: value for name, value in row.items()})

db = psycopg2.connect(told["connstr"])
curs = db.cursor(cursor_factory=psycopg2.extras.DictCursor)
curs.execute("set session_replication_role = replica")
for batch in told["batches"]:
    made = {}
    for row in batch:
        event = as_event(row)
        table = event.ev_extra1
        if table not in told["tables"]:
            continue
        if table not in made:
            name, args = told["tables"][table]
            made[table] = classes[name](table, args, table)
            made[table].reset()
            made[table].prepare_batch({"tick_id": 1}, curs)
        handler = made[table]
        if event.ev_type == "R":
            if handler.needs_table() and not handler.conf.get("ignore_truncate"):
                handler.finish_batch(None, curs)
                handler.reset()
                curs.execute("truncate %s" % skytools.quote_fqident(table))
            continue
        handler.process_event(event, lambda text, arg: curs.execute(text), curs)
    for handler in made.values():
        handler.finish_batch(None, curs)
    db.commit()
db.close()
"""


def run_upstream(
    connstr: str,
    tables: Mapping[str, tuple[str, dict[str, str]]],
    batches: Sequence[Sequence[Mapping[str, Any]]],
) -> None:
    """Let upstream's handlers (name and arguments by table) apply batches of events to a
    database."""
    told = {"connstr": connstr, "tables": tables, "batches": batches}
    done = subprocess.run(
        [PYTHON, "-c", _PROGRAM], input=json.dumps(told), text=True, capture_output=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
