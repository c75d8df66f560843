"""python -m bench.compare [--rows N] [--rounds N] [--plant] [--soak SECONDS] [--statements]

--rounds: compare of the same rows by Vedur, by Londiste 3 (where it is installed), and as one plain
checksum query a side, both at the same time; in turn, round after round, while one writer updates
single rows of the table. Ours and the plain queries also without a writer. Prints medians and the
writer's latency. This is what is done (3 rounds) if nothing else is asked for. --plant: differences
of every kind are planted under load, found, repaired, and looked for again. --soak: repeated rounds
of compare under load, false alarms counted. --statements: processor time of the server for each
kind of pass. JSON goes to bench/results/. With --lock FILE each part waits for that lock, so that
measurements on one machine do not meet.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.compare_lab.load import Latency, writing
from bench.compare_lab.peers import Ground, Ours, Ran, Theirs
from bench.compare_lab.proof import plant, soak
from bench.compare_lab.statements import statements
from bench.field import machine
from vedur.clock import SYSTEM

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
PLAIN = "select count(1), sum(hashtext(t.*::text)::bigint) from only account t"


def plain(ground: Ground, name: str) -> float:
    """Measure one checksum query on each side, both at once: the least that hashing costs."""

    def run(side: str) -> None:
        with ground.open(side, name) as db:
            db.query(PLAIN)

    threads = [threading.Thread(target=run, args=(side,)) for side in ("root", "leaf")]
    began = SYSTEM.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SYSTEM.monotonic() - began


def alarmed(peer: Ours | Theirs, ran: Ran) -> Ran:
    """End the run if a comparison reported a difference where there is none."""
    if ran.code:
        raise SystemExit(f"{peer.name}: false alarm\n{ran.text}")
    return ran


def contest(ground: Ground, peers: list[Ours | Theirs], rounds: int) -> dict[str, Any]:
    """Measure all in turn, each with its own writer."""
    times: dict[str, list[Ran]] = {p.name: [] for p in peers}
    latency = {p.name: Latency() for p in peers}
    quiet = {p.name: Latency() for p in peers}
    checks: dict[str, list[float]] = {"at_rest": [], "with_writer": []}
    rest: list[Ran] = []
    loads = []
    for _ in range(rounds):
        loads.append(round(os.getloadavg()[0], 2))
        checks["at_rest"].append(plain(ground, "ours"))
        rest += [alarmed(p, p.compare()) for p in peers if p.name == "ours"]
        with writing(ground, "ours", Latency()):
            checks["with_writer"].append(plain(ground, "ours"))
        for peer in peers:
            with writing(ground, peer.name, quiet[peer.name]):
                SYSTEM.sleep(5)
            with writing(ground, peer.name, latency[peer.name]):
                times[peer.name].append(alarmed(peer, peer.compare()))
    report: dict[str, Any] = {
        "rows": ground.rows,
        "rounds": rounds,
        "load_before_rounds": loads,
        "plain_queries_seconds": {w: [round(x, 2) for x in s] for w, s in checks.items()},
        "ours_at_rest": [round(r.count, 2) for r in rest],
    }
    for name, runs in times.items():
        report[name] = {
            step: [round(getattr(r, step), 2) for r in runs]
            for step in ("total", "start", "sync", "count")
        }
        report[name]["writer_ms"] = latency[name].summary()
        report[name]["writer_ms_without_compare"] = quiet[name].summary()
    report["ratios"] = ratios(report, "theirs" in times)
    return report


def ratios(report: dict[str, Any], upstream: bool) -> dict[str, float]:
    """Compute medians of ratios within a round: noise from outside affects a round as a whole."""

    def middle(left: list[float], right: list[float]) -> float:
        return round(statistics.median(a / b for a, b in zip(left, right, strict=True)), 2)

    ours, checks = report["ours"], report["plain_queries_seconds"]
    result = {
        "count_to_plain": middle(ours["count"], checks["with_writer"]),
        "count_to_plain_at_rest": middle(report["ours_at_rest"], checks["at_rest"]),
    }
    if upstream:
        theirs = report["theirs"]
        result["total_to_upstream"] = middle(ours["total"], theirs["total"])
        result["count_to_upstream"] = middle(ours["count"], theirs["count"])
    return result


def show(report: dict[str, Any]) -> None:
    print(json.dumps(report, indent=2))


def save(name: str, rows: int, report: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{name}.json"
    known = json.loads(target.read_text()) if target.exists() else {}
    known[str(rows)] = {**report, "machine": machine()}
    target.write_text(json.dumps(known, indent=2) + "\n")
    print(f"written: {target}")


@contextmanager
def alone(lock: str | None) -> Iterator[None]:
    """Hold a lock on a file, if one is named."""
    if lock is None:
        yield
        return
    with Path(lock).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def measure(ground: Ground, peers: list[Ours | Theirs], args: argparse.Namespace) -> None:
    """Run the parts that were asked for, one after the other."""
    parts: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    if args.statements:
        parts.append(("compare_statements", lambda: statements(ground)))
    ours = Ours(ground) if not peers else peers[0]
    assert isinstance(ours, Ours)
    if args.rounds:
        parts.append(("compare", lambda: contest(ground, peers, args.rounds)))
    if args.plant:
        parts.append(("compare_plant", lambda: plant(ours)))
    if args.soak:
        parts.append(("compare_soak", lambda: soak(ours, args.soak)))
    for number, (name, part) in enumerate(parts, 1):
        with alone(args.lock):
            report = part()
        print(f"[{number}/{len(parts)}] {name}", flush=True)
        show(report)
        save(name, args.rows, report)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, help="rounds beside upstream's compare")
    parser.add_argument("--plant", action="store_true", help="find and repair planted differences")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of rounds under load")
    parser.add_argument(
        "--statements", action="store_true", help="what the statements cost the server, and no more"
    )
    parser.add_argument("--no-upstream", action="store_true")
    parser.add_argument("--lock", help="a file to lock while measuring")
    args = parser.parse_args()
    if args.rounds is None:
        args.rounds = 0 if args.plant or args.soak or args.statements else 3
    ground = Ground(args.rows)
    peers: list[Ours | Theirs] = []
    try:
        ground.start()
        if args.rounds or args.plant or args.soak:
            peers.append(Ours(ground))
        if args.rounds and not args.no_upstream:
            if Theirs.at_hand():
                peers.append(Theirs(ground))
            else:
                print("Londiste 3 is not installed: nothing to hold ours against", file=sys.stderr)
        for peer in peers:
            peer.prepare()
        measure(ground, peers, args)
    finally:
        for peer in peers:
            peer.close()
        ground.close()


if __name__ == "__main__":
    main()
