"""Planted differences found and repaired under load, and rounds of compare without false alarms."""

from __future__ import annotations

import json
import os
from typing import Any

from bench.compare_lab.load import Latency, pgbench, writing
from bench.compare_lab.peers import TABLE, Ours
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.demo.lab import QUEUE
from vedur.errors import StateError
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.session import Session
from vedur.pipeline.spark.command_session import end_spark, start_spark

#: Statements on the leaf, and what repair must do about them, by key.
PLANTED = {
    "update account set amount = amount + 0.0001 where id = 11": {("update", 11)},
    "update account set note = '' where id = 14": {("update", 14)},
    "update account a set note = b.note, weight = b.weight from account b"
    " where a.id in (15, 16) and b.id in (15, 16) and a.id <> b.id": {
        ("update", 15),
        ("update", 16),
    },
    "insert into account values (-1, 1), (-2, 1)": {("delete", -1), ("delete", -2)},
    "delete from account where id in (17, 18)": {("insert", 17), ("insert", 18)},
    "update account set note = note || ' ' where id = 19": {("update", 19)},
    "update account set weight = weight * (1 + 2.3e-16) where id = 23": {("update", 23)},
    "update account set id = -30 where id = 30": {("delete", -30), ("insert", 30)},
}


def plant(ours: Ours) -> dict[str, Any]:
    """Plant, compare, repair and compare again; raises unless exactly the planted rows are found
    and repaired."""
    ground = ours.ground
    with ground.open("leaf", ours.name) as leaf, pgbench(ground, ours.name, 100):
        with leaf.transaction():
            leaf.execute("set local session_replication_role = replica")
            for statement in PLANTED:
                leaf.execute(statement)
        expected = set().union(*PLANTED.values())
        found = ours.compare("--rows", "--limit", "50")
        _expect(found.code == 1, f"compare found {found.code} bad tables: {found.text}")
        began = SYSTEM.monotonic()
        done = _repair(ours)
        took = SYSTEM.monotonic() - began
        rows = leaf.query("select action, (row_key::json ->> 0)::int from vedur.repair_log")
        got = {tuple(row) for row in rows}
        _expect(got == expected and len(rows) == len(expected), f"repaired {sorted(got)}")
        again = ours.compare()
        _expect(again.code == 0, f"still different: {again.text}")
        second = _repair(ours)
        left = second["inserts"] + second["updates"] + second["deletes"]
        _expect(left == 0, f"a second repair finds {second}")
    return {
        "planted": len(expected),
        "repaired": done["inserts"] + done["updates"] + done["deletes"],
        "compare_rows_seconds": round(found.total, 2),
        "compare_rows_count_seconds": round(found.count, 2),
        "repair_seconds": round(took, 2),
        "second_run_found": left,
    }


def _repair(ours: Ours) -> dict[str, Any]:
    said = ours.ground.lab.londiste("leaf", "repair", "--apply", "--json", TABLE, timeout=900.0)
    (table,) = json.loads(said.stdout)
    result: dict[str, Any] = table
    return result


def _expect(true: bool, what: str) -> None:
    if not true:
        raise StateError(what)


def soak(ours: Ours, seconds: float) -> dict[str, Any]:
    """Run rounds of compare with rows, one after the other, while pgbench and a writer write."""
    ground = ours.ground
    settings = LondisteSettings(
        db=ground.connstr("leaf", ours.name), queue_name=QUEUE, job_name="leaf"
    )
    latency = Latency()
    ticks: list[int] = []
    alarms = []
    with Session(settings) as session:
        spark = start_spark(session.settings)
        try:
            with pgbench(ground, ours.name, 100), writing(ground, ours.name, latency):
                deadline = SYSTEM.monotonic() + seconds
                while SYSTEM.monotonic() < deadline:
                    result = compare(session, CompareOptions(rows=True, max_wait=120.0), spark)
                    ticks.append(result.tables[0].tick)
                    alarms += [t.as_json() for t in result.tables if not t.match]
        finally:
            end_spark(spark)
    return {
        "seconds": seconds,
        "rounds": len(ticks),
        "different_moments": len(set(ticks)),
        "false_alarms": len(alarms),
        "alarms": alarms,
        "writer_ms": latency.summary(),
        "load": os.getloadavg()[0],
    }
