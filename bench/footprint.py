"""What it takes to run: CPU of an idle worker, time from its start to the first batch, memory.

Idle: all programs run, nothing is written, their CPU time over `--idle` seconds. Start: the leaf's
worker is stopped, `--events` changes wait in the queue, the clock runs from the command that starts
it until the last of them is visible. Memory: resident megabytes after that work, by role of
process. Debian's Londiste does the same where it is installed. Run it as
`make bench PART=footprint`; the report goes to `bench/results/footprint.json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.field import Field, Vedur, load_average, save
from bench.peers import chosen, settings
from bench.peers.londiste import Londiste
from bench.progress import Steps, steps
from bench.stats import summary, text_table
from bench.watch import usage
from vedur.clock import SYSTEM

Measured = Vedur | Londiste
#: The daemons of each, by the names of their pid files.
DAEMONS = {
    "vedur": {"worker": "leaf", "root worker": "root", "ticker": "pgqd"},
    "londiste": {"worker": "up_leaf", "root worker": "up_root", "ticker": "up_pgqd"},
}


def pids(ground: Field, peer: str) -> dict[str, int]:
    """Return the process ids of a peer's daemons."""
    place = ground.lab.base / "pid"
    return {
        what: int(Path(place / f"{name}.pid").read_text()) for what, name in DAEMONS[peer].items()
    }


def first_batch(ground: Field, peer: Measured, events: int) -> float:
    """Measure seconds from the command that starts the worker until waiting work is visible."""
    peer.stop()
    ground.work(peer.name, events)
    mark = ground.mark(peer.name)
    SYSTEM.sleep(4.0)  # tickers of all kinds have seen it
    began = SYSTEM.monotonic()
    peer.start()
    ground.seen(peer.name, mark, 600)
    took = SYSTEM.monotonic() - began
    ground.verify(peer.name)
    return took


def idle(ground: Field, peers: list[Measured], seconds: int) -> dict[str, Any]:
    """Measure CPU in percent of a core, and memory, of all daemons over the same seconds."""
    known = {(p.name, what): pid for p in peers for what, pid in pids(ground, p.name).items()}
    before = {key: usage(pid)[1] for key, pid in known.items()}
    began = SYSTEM.monotonic()
    SYSTEM.sleep(seconds)
    took = SYSTEM.monotonic() - began
    found: dict[str, Any] = {p.name: {} for p in peers}
    for (name, what), pid in known.items():
        rss, cpu = usage(pid)
        spent = {role: used - before[name, what].get(role, 0.0) for role, used in cpu.items()}
        found[name][what] = {
            "cpu_percent": round(100 * sum(spent.values()) / took, 2),
            "cpu_percent_by_role": {r: round(100 * s / took, 2) for r, s in spent.items()},
            "rss_mb": sum(rss.values()),
            "rss_mb_by_role": rss,
        }
    return found


def measure(args: argparse.Namespace, report: dict[str, Any], bar: Steps) -> None:
    """Run the whole part."""
    ground = Field()
    found, report["absent"] = chosen(ground, "vedur,londiste")
    peers = [p for p in found if isinstance(p, Vedur | Londiste)]
    starts: dict[str, list[float]] = {p.name: [] for p in peers}
    try:
        for name, why in report["absent"].items():
            bar.say(f"{name} does not take part: {why}")
        ground.start(settings(found))
        for peer in peers:
            peer.prepare()
            bar.done(f"{peer.name} is ready")
        for number in range(args.rounds):
            for peer in peers:
                starts[peer.name].append(first_batch(ground, peer, args.events))
                bar.done(f"start {number + 1}: {peer.name} {starts[peer.name][-1]:.2f} s")
        SYSTEM.sleep(10.0)  # what is left of the work before
        report["load"] = load_average()
        report["idle"] = idle(ground, peers, args.idle)
        bar.done(f"idle for {args.idle} s")
    finally:
        for peer in peers:
            peer.close()
        ground.close()
    report["start_seconds"] = starts
    report["start"] = summary(starts, "londiste")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.footprint", description=__doc__)
    parser.add_argument("--idle", type=int, default=60, help="seconds")
    parser.add_argument("--events", type=int, default=10_000, help="that wait for the worker")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    report: dict[str, Any] = {"idle_seconds": args.idle, "events": args.events}
    with steps("footprint", 2 + 2 * args.rounds + 1) as bar:
        measure(args, report, bar)
    title = f"from the command to {args.events:,} waiting events applied"
    print(text_table(title, report["start"], "londiste"))
    for name, daemons in report["idle"].items():
        for what, row in daemons.items():
            roles = ", ".join(f"{role} {size} MB" for role, size in row["rss_mb_by_role"].items())
            print(f"{name} {what}: idle {row['cpu_percent']} % of a core; {roles}")
    print(f"written: {save('footprint', report)}")


if __name__ == "__main__":
    main()
