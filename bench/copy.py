"""The first copy: one large table with its key, the walk-through's four small ones, and a hundred
that are almost empty.

Rows are on the root only, tables with their keys on both sides. A turn is: the part is taken out of
replication, the leaf's tables are emptied, a checkpoint, then the clock runs from the command that
adds the tables (`add-table`, `create subscription`, ...) until the peer calls them in sync (`ok`,
`r`, ...). `loaded` is the moment when the rows are there. Programs run and sessions are warm:
everyone has copied a table of 1,000 rows before. `pipe` is `psql | psql` with the key in place, in
text as everyone knows it and in binary. Run it as `make bench PART=copy`; the report goes to
`bench/results/copy.json`.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from bench.field import ROWS, SCHEMA, TABLES, Field, load_average, save
from bench.peers import COPYING, Peer, chosen, settings
from bench.peers.lineup import Lineup
from bench.progress import Steps, steps
from bench.stats import summary, text_table
from vedur.clock import SYSTEM
from vedur.errors import StateError

LARGE = """
create table account (
    id bigint primary key, owner int not null, amount numeric(14, 4), note text, weight float8,
    opened timestamptz);
"""
LARGE_ROWS = """
insert into account
select g, g % 100003, (g * 1.37)::numeric(14, 4), case when g % 7 = 0 then null else 'note ' || g
    end, sqrt(g), '2024-01-01 00:00+00'::timestamptz + g * interval '37 s'
from generate_series(1, {rows}) g;
"""
WARM = "create table warm (id int primary key, note text);"
WARM_ROWS = "insert into warm select g, 'note ' || g from generate_series(1, 1000) g;"
#: With the 200,000 users and sessions of the field: 500,000 rows in four tables.
RECORDS = """
insert into user_login_rec (userid, login_time, ip)
    select g, '2013-01-01', '10.0.0.1' from generate_series(1, 50000) g;
insert into user_logout_rec (userid, logout_time, ip)
    select g, '2013-01-01', '10.0.0.1' from generate_series(1, 50000) g;
"""
REST = 6.0
#: As in many a database: most tables have nothing in them, some a few rows.
MANY = tuple(f"many_{number:03d}" for number in range(100))
MANY_TABLE = """
create table {table} (id int primary key, note text, kind int, made timestamptz);
create index on {table} (kind);
"""
MANY_ROWS = "insert into {table} select g, 'note', g, now() from generate_series(1, 20) g;"
PARTS = {"warm": ("warm",), "large": ("account",), "small": TABLES, "many": MANY}
#: The parts that are measured.
MEASURED = ("large", "small", "many")


def database(ground: Field, peer: str, rows: int) -> None:
    """Create all tables on the root with rows, and empty ones on the leaf."""
    for side in ("root", "leaf"):
        ground.create(side, peer)
        with ground.open(side, peer) as db:
            db.execute(WARM + LARGE + SCHEMA)
            db.execute("".join(MANY_TABLE.format(table=table) for table in MANY))
    with ground.open("root", peer) as db:
        db.execute(WARM_ROWS + LARGE_ROWS.format(rows=rows) + ROWS + RECORDS)
        db.execute("".join(MANY_ROWS.format(table=table) for table in MANY[::5]))
        db.execute("vacuum analyze")


def turn(ground: Field, peer: Peer, part: str, timeout: float = 3600) -> dict[str, float]:
    """Run one copy; returns seconds until the rows are there, and until the tables are in sync."""
    tables = PARTS[part]
    with ground.open("leaf", peer.name) as db:
        db.execute(f"truncate {', '.join(tables)}")
    # PostgreSQL starts workers of subscriptions at most every 5 s (wal_retrieve_retry_interval): a
    # turn must not pay for the one before
    SYSTEM.sleep(REST)
    ground.checkpoint()
    began = SYSTEM.monotonic()
    peer.subscribe(part, tables)
    found: dict[str, float] = {}
    while "ready" not in found:
        state, took = peer.state(part, tables), SYSTEM.monotonic() - began
        if state in ("loaded", "ready"):
            found.setdefault("loaded", took)
        if state == "ready":
            found["ready"] = took
        elif took > timeout:
            raise StateError(f"{peer.name}: {part} not in sync after {timeout:.0f} s")
        else:
            SYSTEM.sleep(0.02)
    ground.verify(peer.name, tables)
    peer.unsubscribe(part, tables)
    return found


def rounds(
    ground: Field, lineup: Lineup, peers: list[Peer], part: str, count: int, bar: Steps
) -> dict[str, Any]:
    """Run all peers in turn, `count` times."""
    seconds: dict[str, list[float]] = {p.name: [] for p in peers}
    loaded: dict[str, list[float]] = {p.name: [] for p in peers}
    loads = []

    def play(peer: Peer) -> None:
        took = turn(ground, peer, part)
        seconds[peer.name].append(took["ready"])
        loaded[peer.name].append(took["loaded"])

    for number in range(count):
        loads.append(load_average())
        for peer in peers:
            doing = f"{part} tables failed in round {number + 1}"
            if lineup.attempt(peer, partial(play, peer), doing, bar):
                bar.done(
                    f"{part}, round {number + 1}: {peer.name} in sync after"
                    f" {seconds[peer.name][-1]:.2f} s, rows there after"
                    f" {loaded[peer.name][-1]:.2f} s"
                )
    seconds = {name: runs for name, runs in seconds.items() if len(runs) == count}
    loaded = {name: loaded[name] for name in seconds}
    return {
        "seconds": seconds,
        "loaded_seconds": loaded,
        "loads": loads,
        "summary": summary(seconds),
        "loaded": summary(loaded),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.copy", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the large table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", default="native,vedur,pipe,pipe_binary", help="peers of it")
    parser.add_argument("--small", default=COPYING, help="peers of the four small tables")
    parser.add_argument("--many", default="native,vedur,pipe", help="peers of the hundred tables")
    args = parser.parse_args()
    ground = Field()
    wanted = {part: getattr(args, part).split(",") for part in MEASURED if getattr(args, part)}
    names = list(dict.fromkeys(name for peers in wanted.values() for name in peers))
    report: dict[str, Any] = {"rows": args.rows, "rounds": args.rounds, "small_rows": 500_000}
    lineup = Lineup(*chosen(ground, ",".join(names)))
    everyone = list(lineup.peers)
    report["absent"] = lineup.absent
    turns = {part: [p for p in everyone if p.name in wanted[part]] for part in wanted}
    total = len(everyone) + args.rounds * sum(map(len, turns.values()))

    def prepare(peer: Peer) -> None:
        database(ground, peer.name, args.rows)
        peer.set_up(PARTS)
        turn(ground, peer, "warm", 300)

    try:
        with steps("copy", total) as bar:
            for name, why in report["absent"].items():
                bar.say(f"{name} does not take part: {why}")
            ground.start(settings(everyone))
            for peer in everyone:
                lineup.attempt(peer, partial(prepare, peer), "set-up failed", bar)
                bar.done(f"{peer.name} is ready" if peer in lineup.peers else f"no {peer.name}")
            for part, those in turns.items():
                report[part] = rounds(ground, lineup, those, part, args.rounds, bar)
    finally:
        for peer in lineup.peers:
            peer.close()
        ground.close()
    titles = {
        "large": f"{args.rows:,} rows with their key",
        "small": "four tables, 500,000 rows in all",
        "many": "a hundred tables, 400 rows in all",
    }
    for part in wanted:
        print(text_table(titles[part], report[part]["summary"]))
    print(f"written: {save('copy', report)}")


if __name__ == "__main__":
    main()
