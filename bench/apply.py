"""Catching up and bulk changes, against native logical replication and Debian's Londiste.

The same two PostgreSQL 15 servers for everyone, a database each, turns within a round; ratios are
taken within a round and shown with their spread; at the end of each turn both sides are compared.
Run it as `make bench-apply`; the report goes to `bench/results/apply.json`.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bench.field import Field, load_average, save
from bench.peers import Londiste, Peer, chosen
from vedur.clock import SYSTEM

BULK = """
begin;
update user_session set login_count = login_count + 1;
update user_info set mod_time = clock_timestamp() where userid = 1;
commit
"""
MARK = "select mod_time::text from user_info where userid = 1"


def catch_up(ground: Field, peer: Peer, events: int) -> float:
    """Seconds from letting it go until the last change is visible."""
    with peer.down():
        SYSTEM.sleep(2.0)
        ground.work(peer.name, events)
        mark = ground.mark(peer.name)
        SYSTEM.sleep(4.0)  # tickers of all kinds have seen it
        ground.checkpoint()
    began = SYSTEM.monotonic()
    peer.up()
    ground.seen(peer.name, mark, 1800)
    return SYSTEM.monotonic() - began


def bulk(ground: Field, peer: Peer) -> float:
    """Seconds from the commit of an UPDATE of all users until it is visible."""
    ground.checkpoint()
    with ground.open("root", peer.name) as db:
        db.execute(BULK)
        began = SYSTEM.monotonic()
        mark = str(db.value(MARK))
    ground.seen(peer.name, mark, 1800)
    return SYSTEM.monotonic() - began


def summary(runs: dict[str, list[float]], of: str = "native") -> dict[str, dict[str, float]]:
    """Medians, and ratios to one of them within each round."""
    found = {}
    for name, values in runs.items():
        row = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        if of in runs:
            ratios = [v / n for v, n in zip(values, runs[of], strict=True)]
            row |= {
                "ratio": statistics.median(ratios),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
        found[name] = row
    return found


def show(title: str, result: dict[str, dict[str, float]], events: int = 0) -> None:
    print(f"\n{title}\n{'':10} {'seconds':>9} {'min':>8} {'max':>8}   ratio to native (min..max)")
    for name, row in result.items():
        rate = f"  {events / row['median']:>9,.0f} events/s" if events else ""
        ratio = (
            f"{row['ratio']:.2f} ({row['ratio_min']:.2f}..{row['ratio_max']:.2f})"
            if "ratio" in row
            else ""
        )
        print(f"{name:10} {row['median']:9.2f} {row['min']:8.2f} {row['max']:8.2f}   {ratio}{rate}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.apply", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="native,vedur,londiste")
    args = parser.parse_args()
    ground = Field()
    report: dict[str, Any] = {"events": args.events, "rounds": args.rounds, "loads": []}
    peers: list[Peer] = []
    try:
        ground.start()
        peers, report["absent"] = chosen(ground, args.peers)
        for name, why in report["absent"].items():
            print(f"{name} does not take part: {why}")
        for peer in peers:
            peer.prepare()
            print(f"{peer.name} is ready", flush=True)
        behind: dict[str, list[float]] = {p.name: [] for p in peers}
        large: dict[str, list[float]] = {p.name: [] for p in peers}
        for number in range(args.rounds):
            report["loads"].append(load_average())
            for peer in peers:
                behind[peer.name].append(catch_up(ground, peer, args.events))
                large[peer.name].append(bulk(ground, peer))
                ground.verify(peer.name)
                print(f"round {number + 1}: {peer.name} {behind[peer.name][-1]:.2f} s,"
                      f" bulk {large[peer.name][-1]:.2f} s", flush=True)  # fmt: skip
    finally:
        for peer in peers:
            if isinstance(peer, Londiste):
                peer.close()
        ground.close()
    report |= {"catch_up": summary(behind), "bulk": summary(large)}
    show(f"catching up with {args.events:,} events", report["catch_up"], args.events)
    show("UPDATE of 200,000 rows, commit to visible", report["bulk"])
    print(f"\nload average before each round: {', '.join(map(str, report['loads']))}")
    print(f"written: {save('apply', report)}")


if __name__ == "__main__":
    main()
