"""How long writers are refused while the root moves: `takeover` there and back under load.

A root and a branch on two servers, with workers and tickers as an operator runs them. pgbench makes
500 transactions a second on the root until it is refused; the command prints how long nobody could
write, from the closing of the old root to the opening of the new one. Run it as `make bench
PART=takeover`; the report goes to `bench/results/takeover.json`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.field import TABLES, Field, content, load_average, save
from bench.latency import pgbench
from bench.progress import steps
from vedur.clock import SYSTEM
from vedur.errors import StateError

#: Node -> the server that it is on.
NODES = {"reign_one": "root", "reign_two": "leaf"}
REFUSED = re.compile(r"Writers were refused for ([0-9.]+) s")
PATIENCE = 300.0


def prepare(ground: Field) -> None:
    """Create root and branch, with all tables and sequences in sync; everything runs."""
    lab = ground.lab
    one, two = NODES
    ground.database(one)
    with ground.open("leaf", "postgres") as admin:
        admin.execute(f'alter database "{one}" rename to "{two}"')
    for name, side in NODES.items():
        lab.worker_ini(name, ground.connstr(side, name))
    files = {f"{x}file": f"{lab.base}/{x}/pgqd_two.{x}" for x in ("log", "pid")}
    path = lab.ticker_ini("leaf", files)
    lab.inis["pgqd_two"] = path.rename(path.with_stem("pgqd_two"))
    lab.ticker_ini("root")
    places = {name: ground.connstr(side, name) for name, side in NODES.items()}
    lab.londiste(one, "create-root", one, places[one])
    lab.londiste(one, "add-table", *TABLES, timeout=600)
    lab.londiste(one, "add-seq", "--all")
    lab.start_ticker()
    lab.run("pgqd", "-d", str(lab.inis["pgqd_two"]))
    lab.start_worker(one)
    lab.londiste(two, "create-branch", two, places[two], f"--provider={places[one]}")
    lab.londiste(two, "add-table", "--expect-sync", *TABLES)
    lab.start_worker(two)
    lab.londiste(two, "wait-sync", timeout=PATIENCE)
    deadline = SYSTEM.monotonic() + PATIENCE
    while lab.londiste(two, "add-seq", "--all", check=False).returncode or not _ready(ground, two):
        if SYSTEM.monotonic() > deadline:
            raise StateError(f'"{two}" could not take over: see switchover --check')
        SYSTEM.sleep(1.0)


def _ready(ground: Field, name: str) -> bool:
    return ground.lab.londiste(name, "switchover", "--check", check=False).returncode == 0


@contextmanager
def writers(ground: Field, name: str, rate: int) -> Iterator[None]:
    """Write the walk-through's transactions into a database until it refuses them."""
    command = pgbench(ground, NODES[name], rate, 600, clients=8)
    load = subprocess.Popen([*command, name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield
        said = load.communicate(timeout=60)[1].decode(errors="replace")
    finally:
        load.kill()
        load.wait()
    if "Insert into queue disallowed" not in said:
        raise StateError(f"pgbench was not refused by the old root: {said[-300:]}")


def move(ground: Field, old: str, new: str, seconds: float, rate: int) -> float:
    """Let `new` take over from `old` under load; returns for how long writers were refused."""
    with ground.open(NODES[old], old) as db:
        before = int(db.value("select max(id) from user_login_rec") or 0)
        with writers(ground, old, rate):
            SYSTEM.sleep(seconds)
            done = ground.lab.londiste(new, "takeover", old, "--no-compare", "--max-lag=60")
        written = int(db.value("select max(id) from user_login_rec")) - before
    found = REFUSED.search(done.stdout + done.stderr)
    if found is None:
        raise StateError(f"takeover did not say how long: {done.stderr[-300:]}")
    if written < seconds * rate / 4:
        raise StateError(f"only {written} rows were written in {seconds} s: no load to speak of")
    return float(found[1])


def verify(ground: Field) -> None:
    """Raise unless both nodes hold the same rows once they have come to rest."""
    deadline = SYSTEM.monotonic() + PATIENCE
    for table in TABLES:
        while True:
            found = []
            for name, side in NODES.items():
                with ground.open(side, name) as db:
                    found.append(content(db, table))
            if found[0] == found[1]:
                break
            if SYSTEM.monotonic() > deadline:
                raise StateError(f"{table} differs: {found}")
            SYSTEM.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.takeover", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="takeovers, there and back")
    parser.add_argument("--seconds", type=float, default=5.0, help="of load before each")
    parser.add_argument("--rate", type=int, default=500, help="transactions per second")
    args = parser.parse_args()
    ground = Field()
    report: dict[str, Any] = {"rate": args.rate, "times": args.times, "loads": [], "windows": []}
    try:
        with steps("takeover", 1 + args.times) as bar:
            ground.start()
            prepare(ground)
            bar.done("root and branch are ready")
            old, new = NODES
            for number in range(1, args.times + 1):
                report["loads"].append(load_average())
                report["windows"].append(move(ground, old, new, args.seconds, args.rate))
                bar.done(f"takeover {number}: {report['windows'][-1]:.2f} s")
                old, new = new, old
            verify(ground)
    finally:
        ground.close()
    report["median"], report["max"] = median(report["windows"]), max(report["windows"])
    print(
        f"writers were refused for {report['median']:.2f} s (median of {args.times} takeovers at "
        f"{args.rate} transactions a second), at most for {report['max']:.2f} s"
    )
    print(f"written: {save('takeover', report)}")


if __name__ == "__main__":
    main()
