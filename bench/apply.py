"""Catching up and bulk changes, against native logical replication and Debian's Londiste.

The same two PostgreSQL 15 servers for everyone, a database each, turns within a round; ratios are
taken within a round and shown with their spread; at the end of each turn both sides are compared.
A first round is not counted: programs have then done the same work once, as those that run for
days have.
Run it as `make bench PART=apply`; the report goes to `bench/results/apply.json`.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from bench.field import Field, Vedur, load_average, save
from bench.null_sink import position, read_and_decode
from bench.peers import REPLICATING, Peer, chosen, settings
from bench.peers.base import time_backlog
from bench.peers.lineup import Lineup
from bench.progress import steps
from bench.stats import summary, text_table
from vedur.clock import SYSTEM

BULK = """
begin;
update user_session set login_count = login_count + 1;
update user_info set mod_time = clock_timestamp() where userid = 1;
commit
"""
#: Seconds. One that takes longer falls out of the part, with that as its reason.
PATIENCE = 600
MARK = "select mod_time::text from user_info where userid = 1"


def catch_up(ground: Field, peer: Peer, events: int) -> float:
    """Measure seconds from resuming replication until the last change is visible."""

    def work() -> None:
        SYSTEM.sleep(2.0)
        ground.work(peer.name, events)

    return time_backlog(ground, peer, work, settle=4.0, patience=PATIENCE)


def bulk(ground: Field, peer: Peer) -> float:
    """Measure seconds from the commit of an UPDATE of all users until it is visible."""
    ground.checkpoint()
    with ground.open("root", peer.name) as db:
        db.execute(BULK)
        began = SYSTEM.monotonic()
        mark = str(db.value(MARK))
    ground.seen(peer.name, mark, PATIENCE)
    return SYSTEM.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.apply", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1, help="rounds that are not counted")
    parser.add_argument("--peers", default=REPLICATING)
    parser.add_argument(
        "--null-sink", action="store_true", help="read and decode Vedur's backlog once more"
    )
    args = parser.parse_args()
    ground = Field()
    report: dict[str, Any] = {"events": args.events, "rounds": args.rounds, "loads": []}
    report["warm"] = args.warm
    lineup = Lineup(*chosen(ground, args.peers))
    everyone = list(lineup.peers)
    report["absent"] = lineup.absent
    behind: dict[str, list[float]] = {p.name: [] for p in everyone}
    large: dict[str, list[float]] = {p.name: [] for p in everyone}
    nowhere: list[dict[str, Any]] = []

    def turn(peer: Peer) -> None:
        sunk = peer if args.null_sink and isinstance(peer, Vedur) else None
        ticks = [position(ground, sunk)] if sunk else []
        behind[peer.name].append(catch_up(ground, peer, args.events))
        ticks += [position(ground, sunk)] if sunk else []
        large[peer.name].append(bulk(ground, peer))
        ground.verify(peer.name)
        nowhere.extend([read_and_decode(ground, sunk, *ticks)] if sunk else [])

    try:
        with steps("apply", len(everyone) * (1 + args.warm + args.rounds)) as bar:
            for name, why in report["absent"].items():
                bar.say(f"{name} does not take part: {why}")
            ground.start(settings(everyone))
            for peer in everyone:
                lineup.attempt(peer, peer.prepare, "set-up failed", bar)
                bar.done(f"{peer.name} is ready" if peer in lineup.peers else f"no {peer.name}")
            for number in range(1 - args.warm, args.rounds + 1):
                report["loads"] += [load_average()] if number > 0 else []
                for peer in everyone:
                    doing = f"failed in round {number}"
                    if lineup.attempt(peer, partial(turn, peer), doing, bar):
                        bar.done(f"round {number}: {peer.name} {behind[peer.name][-1]:.2f} s,"
                                 f" bulk {large[peer.name][-1]:.2f} s")  # fmt: skip
    finally:
        for peer in lineup.peers:
            peer.close()
        ground.close()
    behind = {p.name: behind[p.name][args.warm :] for p in lineup.peers}
    large = {p.name: large[p.name][args.warm :] for p in lineup.peers}
    report |= {"seconds": behind, "bulk_seconds": large}
    if nowhere:
        report["null_sink"] = nowhere[args.warm :]
    report |= {"catch_up": summary(behind), "bulk": summary(large)}
    tell(report)
    print(f"written: {save('apply', report)}")


def tell(report: dict[str, Any]) -> None:
    """Print what was measured."""
    events = report["events"]
    title = f"catching up with {events:,} events"
    print(text_table(title, report["catch_up"], events=events))
    print(text_table("UPDATE of 200,000 rows, commit to visible", report["bulk"]))
    for row in report.get("null_sink", ()):
        each = 1e6 * row["cpu"] / row["events"]
        print(f"read and decoded only: {row['events']:,} events in {row['seconds']:.2f} s,"
              f" {each:.2f} µs of CPU each")  # fmt: skip
    print(f"\nload average before each round: {', '.join(map(str, report['loads']))}")


if __name__ == "__main__":
    main()
