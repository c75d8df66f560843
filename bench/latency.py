"""How long a change takes to the other side while others are made: commit to visible.

pgbench makes 500 transactions a second with the walk-through's scripts; beside it a probe commits
a row every 50 ms and looks for it on the other side every 2 ms. Run it as
`make bench PART=latency`; the report goes to `bench/results/latency.json`. For Vedur it also tells
what a batch costs the worker's processes; `--resident off` measures without a resident task.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.field import USERS, Field, Vedur, load_average, save
from bench.peers import REPLICATING, Peer, chosen, settings
from bench.peers.lineup import Lineup
from bench.progress import steps
from bench.stats import quantiles
from bench.watch import usage
from vedur.clock import SYSTEM
from vedur.demo.lab import sql_text
from vedur.errors import StateError

PROBE = "insert into user_logout_rec (userid, logout_time, ip) values (0, now(), null) returning id"
LOOK = "select id from user_logout_rec where userid = 0 and id > %s order by id"


def pgbench(ground: Field, server: str, rate: int, seconds: int, clients: int) -> list[str]:
    """Return the command that writes the walk-through's transactions, but for the database; its
    scripts are written into the laboratory."""
    host, base = ground.lab.servers[server], ground.lab.base
    command = [
        str(host.binaries.path("pgbench")), "-n", "-M", "prepared", "-c", str(clients), "-j", "1",
        "-R", str(rate), "-T", str(seconds), "-D", f"users={USERS}",
        "-h", "127.0.0.1", "-p", str(host.port), "-U", "postgres",
    ]  # fmt: skip
    for script in ("login.sql", "logout.sql"):
        path = base / script
        path.write_text(sql_text(script))
        command += ["-f", str(path)]
    return command


@contextmanager
def transactions(ground: Field, database: str, rate: int, seconds: float) -> Iterator[None]:
    """Write the walk-through's transactions into a database of the root's server meanwhile."""
    command = pgbench(ground, "root", rate, int(seconds) + 2, clients=4)
    load = subprocess.Popen([*command, database], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        load.communicate()
    if load.returncode:
        raise RuntimeError("pgbench failed")


def probe(ground: Field, peer: Peer, seconds: float, rate: int) -> list[float]:
    """Measure seconds from commit to visible, one value for each probe."""
    sent: dict[int, float] = {}
    stop = threading.Event()

    def send() -> None:
        with ground.open("root", peer.name) as db:
            while not stop.wait(0.05):
                number = int(db.value(PROBE))
                sent[number] = SYSTEM.monotonic()

    sender = threading.Thread(target=send)
    load = transactions(ground, peer.name, rate, seconds)
    with load, ground.open("leaf", peer.name) as db:
        db.execute("create index if not exists probes on user_logout_rec (id) where userid = 0")
        last = int(db.value("select coalesce(max(id), 0) from user_logout_rec where userid = 0"))
        SYSTEM.sleep(1.0)
        sender.start()
        found: dict[int, float] = {}
        began = SYSTEM.monotonic()
        while True:
            now = SYSTEM.monotonic()
            if now > began + seconds and not stop.is_set():
                stop.set()
                sender.join()  # one more probe may be on its way: it counts, too
            for (number,) in db.query(LOOK, [last]):
                found[number] = SYSTEM.monotonic()
                last = number
            if stop.is_set() and (len(found) >= len(sent) or now > began + seconds + 60):
                break
            SYSTEM.sleep(0.002)
    lost = len(sent.keys() - found.keys())
    if lost:
        raise StateError(f"{peer.name}: {lost} of {len(sent)} probes did not come within 60 s")
    return [found[n] - sent[n] for n in sent]


def batches(ground: Field, peer: Vedur) -> int:
    """Count the batches that a worker has applied."""
    with ground.open("leaf", peer.name) as db:
        return int(db.value("select coalesce(max(batch_nr), 0) from vedur.batch_log"))


@contextmanager
def cpu_of_batches(ground: Field, peer: Peer, row: dict[str, Any]) -> Iterator[None]:
    """Note in `row` what a batch of Vedur costs meanwhile: milliseconds of CPU by role of process.
    What a task process has used that ends meanwhile is not seen."""
    if not isinstance(peer, Vedur):
        yield
        return
    first, before = batches(ground, peer), usage(peer.worker_pid)[1]
    yield
    count, after = batches(ground, peer) - first, usage(peer.worker_pid)[1]
    spent = {role: 1000 * (used - before.get(role, 0.0)) / count for role, used in after.items()}
    row |= {"batches": count, "cpu_ms": {role: round(ms, 1) for role, ms in spent.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.latency", description=__doc__)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rate", type=int, default=500, help="transactions per second")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", default=REPLICATING)
    parser.add_argument("--resident", choices=("auto", "off"), default="auto")
    args = parser.parse_args()
    ground = Field()
    report: dict[str, Any] = {"rate": args.rate, "seconds": args.seconds, "rounds": []}
    lineup = Lineup(*chosen(ground, args.peers))
    everyone = list(lineup.peers)
    report["absent"] = lineup.absent
    for peer in everyone:
        if isinstance(peer, Vedur):
            peer.settings["resident_task"] = args.resident
    rows: list[dict[str, Any]] = []

    def turn(peer: Peer) -> None:
        load = load_average()
        row: dict[str, Any] = {"peer": peer.name, "load": load}
        with cpu_of_batches(ground, peer, row):
            row |= quantiles(probe(ground, peer, args.seconds, args.rate))
        ground.seen(peer.name, ground.mark(peer.name), 300)
        ground.verify(peer.name)
        rows.append(row)

    try:
        with steps("latency", len(everyone) * (1 + args.rounds)) as bar:
            for name, why in report["absent"].items():
                bar.say(f"{name} does not take part: {why}")
            ground.start(settings(everyone))
            for peer in everyone:
                lineup.attempt(peer, peer.prepare, "set-up failed", bar)
                bar.done(f"{peer.name} is ready" if peer in lineup.peers else f"no {peer.name}")
            for number in range(args.rounds):
                for peer in everyone:
                    doing = f"failed in round {number + 1}"
                    if lineup.attempt(peer, partial(turn, peer), doing, bar):
                        row = rows[-1]
                        said = " ".join(f"{k} {row[k]:.3f}" for k in ("p50", "p90", "p99", "max"))
                        if "cpu_ms" in row:
                            bar.say(f"CPU of a batch, ms: {row['cpu_ms']}")
                        bar.done(f"round {number + 1}: {peer.name} {said} s (load {row['load']})")
    finally:
        for peer in lineup.peers:
            peer.close()
        ground.close()
    report["rounds"] = [row for row in rows if row["peer"] in {p.name for p in lineup.peers}]
    print(f"written: {save('latency', report)}")


if __name__ == "__main__":
    main()
