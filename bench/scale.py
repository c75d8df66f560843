"""Does the cost of an event grow with the backlog, or memory with the size of a tick?

Two servers, the walk-through's tables, its load in small transactions while replication rests;
then the time until the last change is visible on the other side, the batches that it took, the
peaks of memory and connections. `--giant` adds one transaction with that many changes, `--tables`
the same changes over more and more tables (bench/tables.py). Run it as `make bench PART=scale`;
the report goes to `bench/results/scale.json`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from bench import tables
from bench.field import TABLES, Field, Vedur, load_average, save
from bench.progress import Steps, steps
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
    """Read what the worker has recorded of its batches since one of them."""
    with peer.ground.open("leaf", peer.name) as db:
        row = db.one(BATCHES, [after])
        return dict(row._asdict())


def measure(
    peer: Vedur, events: int, produce: Callable[[], float], equal: Sequence[str] = TABLES
) -> dict[str, Any]:
    """Make a backlog, let it be applied, and watch."""
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
    ground.verify(peer.name, equal)
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


def line(row: dict[str, Any], first: dict[str, Any]) -> str:
    """Format one measurement for the terminal."""
    ratio = row["us_per_event"] / first["us_per_event"]
    rss = " ".join(f"{role} {size} MB" for role, size in sorted(row["rss"].items()))
    cpu = " ".join(f"{role} {used:.1f} s" for role, used in sorted(row["cpu"].items()))
    links = " ".join(f"{side} {n}" for side, n in sorted(row["connections"].items()))
    return (
        f"{row['events']:>9,} events: {row['seconds']:8.2f} s {row['events_per_second']:>8,} /s"
        f" {row['us_per_event']:7.1f} us/event ({ratio:.2f})  {row['batches']} batches\n"
        f"{'':10}waited for staging {row['stage']} s, merge {row['merge']} s\n"
        f"{'':10}peaks: {rss}; connections: {links}; CPU: {cpu}; load {row['load_before']}"
    )


def by_events(sizes: list[int], giants: int, bar: Steps) -> dict[str, Any]:
    """Measure backlogs of growing size, and one giant transaction."""
    ground = Field()
    found: dict[str, Any] = {"events": []}
    rows = found["events"]
    try:
        peer = Vedur(ground.start())
        peer.prepare()
        for size in sizes:
            rows.append(measure(peer, size, lambda size=size: ground.work(peer.name, size)))
            bar.done(line(rows[-1], rows[0]))
        if giants:
            found["giant"] = measure(peer, giants, lambda: giant(peer, giants))
            bar.done("one transaction\n" + line(found["giant"], found["giant"]))
    finally:
        ground.close()
    return found


def by_tables(sizes: list[int], events: int, seconds: int, bar: Steps) -> dict[str, Any]:
    """Measure the same changes over more and more tables."""
    ground, rows = Field(), []
    try:
        peer = Vedur(ground.start())
        tables.create(ground, peer.name, sizes)
        peer.set_up({"bench": TABLES})
        ground.lab.londiste("leaf", "add-table", "--expect-sync", *TABLES)
        peer.warm_up()
        known = 0
        for size in sizes:
            began = SYSTEM.monotonic()
            tables.add(peer, tables.names(size)[known:])
            added = SYSTEM.monotonic() - began
            known = size
            # the first batch with new tables makes their staging tables: not what is measured
            tables.backlog(peer, size, max(10_000, 10 * size))
            ground.seen(peer.name, ground.mark(peer.name), 600)
            row = measure(
                peer, events, lambda size=size: tables.backlog(peer, size, events),
                tables.everything(size),
            )  # fmt: skip
            row |= {"tables": size, "added_in": round(added, 2), **tables.live(peer, size, seconds)}
            ground.seen(peer.name, ground.mark(peer.name), 600)
            ground.verify(peer.name, tables.everything(size))
            rows.append(row)
            bar.done(f"{size} tables\n{line(row, rows[0])}\n{'':10}live: {row['live']}"
                     f" halves {row['live_p50_halves']}")  # fmt: skip
    finally:
        ground.close()
    return {"tables": rows, "table_events": events}


def numbers(text: str) -> list[int]:
    """Parse `1,10,100`."""
    return [int(word) for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="events of each backlog")
    parser.add_argument("--giant", type=int, default=0, help="changes in one transaction")
    parser.add_argument("--tables", type=numbers, default="", help="numbers of tables, growing")
    parser.add_argument("--table-events", type=int, default=200_000)
    parser.add_argument("--live", type=int, default=20, help="seconds of load over all tables")
    parser.add_argument("--keep", default="scale", help="name of the report")
    args = parser.parse_args()
    report: dict[str, Any] = {}
    with steps("scale", len(args.sizes) + bool(args.giant) + len(args.tables)) as bar:
        if args.sizes or args.giant:
            report |= by_events(args.sizes, args.giant, bar)
        if args.tables:
            report |= by_tables(sorted(args.tables), args.table_events, args.live, bar)
    print(f"written: {save(args.keep, report)}")


def giant(peer: Vedur, rows: int) -> float:
    """Run one transaction with that many changes; returns its seconds."""
    began = SYSTEM.monotonic()
    with peer.ground.open("root", peer.name) as db:
        db.execute(GIANT.format(rows=rows))
    return SYSTEM.monotonic() - began


if __name__ == "__main__":
    main()
