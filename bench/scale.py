"""Does the cost of an event grow with the backlog, or memory with the size of a tick?

Two servers, the walk-through's tables, its load in small transactions while replication rests;
then the time until the last change is visible on the other side, the batches that it took, the
peaks of memory and connections. `--giant` adds one transaction with that many changes. Run it as
`make bench-scale`; the report goes to `bench/results/scale.json`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from bench.field import Field, Vedur, load_average, save
from bench.watch import watched
from vedur.clock import SYSTEM

SIZES = "10000,100000,1000000"
BATCHES = """
select coalesce(max(batch_nr), 0) as newest, count(*) as batches,
    coalesce(max(events), 0) as largest_batch,
    round(sum(stage_seconds)::numeric, 2)::float8 as stage,
    round(sum(merge_seconds)::numeric, 2)::float8 as merge,
    round(sum(commit_seconds + finish_seconds)::numeric, 2)::float8 as commit
from vedur.batch_log where batch_nr > %s
"""
GIANT = """
insert into user_session (userid, logintime, login_count)
select 1000000 + i, now(), i from generate_series(1, {rows}) i
"""


def batches(peer: Vedur, after: int) -> dict[str, Any]:
    """What the worker has recorded of its batches since one of them."""
    with peer.ground.open("leaf", peer.name) as db:
        row = db.one(BATCHES, [after])
        return dict(row._asdict())


def measure(peer: Vedur, events: int, produce: Any) -> dict[str, Any]:
    """Make a backlog, let it be caught up with, look on."""
    ground = peer.ground
    with peer.down():
        made = produce()
        mark = ground.mark(peer.name)
        SYSTEM.sleep(1.0)  # the ticker's last word
        ground.checkpoint()
    known, load = batches(peer, 0)["newest"], load_average()
    sides = {side: ground.connstr(side, peer.name) for side in ("root", "leaf")}
    with watched(peer.worker_pid, sides) as peaks:
        peer.up()
        began = SYSTEM.monotonic()
        ground.seen(peer.name, mark, 3600)
        took = SYSTEM.monotonic() - began
    ground.verify(peer.name)
    taken = batches(peer, known)
    return {
        "events": events,
        "made_in": round(made, 2),
        "seconds": round(took, 2),
        "events_per_second": round(events / took),
        "us_per_event": round(took / events * 1e6, 1),
        **taken,
        "load_before": load,
        **asdict(peaks),
    }


def show(row: dict[str, Any], first: dict[str, Any] | None) -> None:
    ratio = row["us_per_event"] / first["us_per_event"] if first else 1.0
    rss = " ".join(f"{role} {size} MB" for role, size in sorted(row["rss"].items()))
    cpu = " ".join(f"{role} {used:.1f} s" for role, used in sorted(row["cpu"].items()))
    links = " ".join(f"{side} {n}" for side, n in sorted(row["connections"].items()))
    print(
        f"{row['events']:>9,} events: {row['seconds']:8.2f} s {row['events_per_second']:>8,} /s"
        f" {row['us_per_event']:7.1f} us/event ({ratio:.2f})  {row['batches']} batches\n"
        f"{'':10}waited for staging {row['stage']} s, merge {row['merge']} s\n"
        f"{'':10}peaks: {rss}; connections: {links}; CPU: {cpu}; load {row['load_before']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help="events of each backlog")
    parser.add_argument("--giant", type=int, default=0, help="changes in one transaction")
    parser.add_argument("--keep", default="scale", help="name of the report")
    args = parser.parse_args()
    ground = Field()
    rows: list[dict[str, Any]] = []
    try:
        ground.start()
        peer = Vedur(ground)
        peer.prepare()
        for size in (int(s) for s in args.sizes.split(",") if s):
            row = measure(peer, size, lambda size=size: ground.work(peer.name, size))
            show(row, rows[0] if rows else None)
            rows.append(row)
        if args.giant:
            row = measure(peer, args.giant, lambda: giant(peer, args.giant))
            show(row, None)
            rows.append({**row, "giant": True})
    finally:
        ground.close()
    print(f"written: {save(args.keep, rows)}")


def giant(peer: Vedur, rows: int) -> float:
    """One transaction with that many changes; the seconds that it took."""
    began = SYSTEM.monotonic()
    with peer.ground.open("root", peer.name) as db:
        db.execute(GIANT.format(rows=rows))
    return SYSTEM.monotonic() - began


if __name__ == "__main__":
    main()
