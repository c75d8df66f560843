"""What a handler costs: changes of a table whose columns are masked, and of the same table plain.

An UPDATE of all rows of one table is made while replication rests, then the time until it is
visible on the other side. Three series, whose turns alternate: a plain table on a node that knows
no handler at all (`bare`), the same table beside one with a handler (`plain`), and the table with a
mask of two columns (`masked`). Costs are differences within a round, by event. Run it as `make
bench PART=handlers`; the report goes to `bench/results/handlers.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from bench.field import TABLES, Field, Vedur, load_average, save
from bench.peers.base import time_backlog
from bench.progress import steps
from vedur.errors import StateError

PLAIN, MASKED = "people", "people_masked"
RULES = {f"public.{MASKED}": {"id": "keep", "name": "hash", "mail": "hash", "note": "keep"}}
DDL = "create table {} (id int primary key, name text, mail text, note text)"
FILL = (
    "insert into {} select i, 'name ' || i, 'mail' || i || '@example.org', 'n'"
    " from generate_series(1, {}) i"
)
CHANGE = "update {} set name = 'name ' || id || clock_timestamp(), note = note || 'n'"
PATIENCE = 1800


def change(peer: Vedur, table: str) -> float:
    """Measure seconds from resuming replication until an UPDATE of all rows is visible."""

    def work() -> None:
        with peer.ground.open("root", peer.name) as db:
            db.execute(CHANGE.format(table))

    return time_backlog(peer.ground, peer, work, settle=2.0, patience=PATIENCE)


def require_masked(peer: Vedur, rows: int) -> None:
    """Raise unless all rows are there, without a clear value."""
    text = "select count(*) as n, count(*) filter (where name like 'name %') as clear from "
    with peer.ground.open("leaf", peer.name) as db:
        found = tuple(db.one(text + MASKED))
    if found != (rows, 0):
        raise StateError(f"{MASKED}: {found[0]} of {rows} rows, {found[1]} of them clear")


def prepare(ground: Field, rows: int) -> Vedur:
    """Create the nodes and the plain table; the masked one is there and not replicated yet."""
    rules = ground.lab.base / "rules.json"
    rules.write_text(json.dumps(RULES))
    keys = {"obfuscator_map": str(rules), "obfuscator_key": "of the bench"}
    peer = Vedur(ground, settings=keys)
    ground.database(peer.name)
    for side in ("root", "leaf"):
        with ground.open(side, peer.name) as db:
            for table in (PLAIN, MASKED):
                db.execute(DDL.format(table))
                if side == "root" or table == PLAIN:
                    db.execute(FILL.format(table, rows))
            db.execute("vacuum analyze")
    peer.set_up({"bench": (*TABLES, PLAIN, MASKED)})
    ground.lab.londiste("leaf", "add-table", "--expect-sync", *TABLES, PLAIN)
    peer.warm_up()
    return peer


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.handlers", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1, help="rounds that are not counted")
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {"bare": [], "plain": [], "masked": []}
    report: dict[str, Any] = {"events": args.rows, "rounds": args.rounds, "loads": []}
    ground = Field()
    try:
        with steps("handlers", 2 * (args.warm + args.rounds)) as bar:
            peer = prepare(ground.start(), args.rows)
            for number in range(1 - args.warm, args.rounds + 1):
                took = change(peer, PLAIN)
                seconds["bare"] += [took] if number > 0 else []
                bar.done(f"round {number}: no handlers {took:.2f} s")
            ground.lab.londiste("leaf", "add-table", MASKED, "--handler=obfuscate", timeout=600)
            ground.lab.londiste("leaf", "wait-sync", timeout=600)
            for number in range(1 - args.warm, args.rounds + 1):
                report["loads"] += [load_average()] if number > 0 else []
                took = {"plain": change(peer, PLAIN), "masked": change(peer, MASKED)}
                for name, each in took.items():
                    seconds[name] += [each] if number > 0 else []
                bar.done(f"round {number}: plain {took['plain']:.2f} s,"
                         f" masked {took['masked']:.2f} s")  # fmt: skip
            ground.verify(peer.name, (*TABLES, PLAIN))
            require_masked(peer, args.rows)
    finally:
        ground.close()
    costs = [
        (masked - plain) / args.rows * 1e6
        for masked, plain in zip(seconds["masked"], seconds["plain"], strict=True)
    ]
    report |= {"seconds": seconds, "us_per_event": costs, "median_us": statistics.median(costs)}
    report["plain_to_bare"] = statistics.median(seconds["plain"]) / statistics.median(
        seconds["bare"]
    )
    print(f"a mask of two columns: {report['median_us']:.2f} us an event more than plain replay")
    print(f"a table without handler beside it: {report['plain_to_bare']:.3f} of its time alone")
    print(f"written: {save('handlers', report)}")


if __name__ == "__main__":
    main()
