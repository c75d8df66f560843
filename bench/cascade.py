"""A branch beside a leaf: how fast it catches up, what each hop adds, what it costs its provider.

A root, a branch and a leaf that read from it, and a leaf below the branch, on two servers. The
branch and the leaf beside it catch up with the same backlog, one after the other, in turns; then
the leaf below the branch does, from the branch's queue. Beside that a probe shows when a change is
visible on each of them. Run it as `make bench PART=cascade`; the report goes to
`bench/results/cascade.json`.
"""

from __future__ import annotations

import argparse
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.field import QUEUE, TABLES, Field, content, load_average, save
from bench.latency import LOOK, PROBE, transactions
from bench.progress import steps
from bench.stats import quantiles, summary, text_table
from bench.watch import usage
from vedur.clock import SYSTEM
from vedur.errors import StateError

ROOT, BRANCH, LEAF, BELOW = "cascade", "branch", "leaf_beside", "leaf_below"
#: Node -> the one that it reads from.
PROVIDERS = {BRANCH: ROOT, LEAF: ROOT, BELOW: BRANCH}
PATIENCE = 600.0


@dataclass
class Cascade:
    """The nodes, each in a database of its own; the root has a server for itself."""

    ground: Field

    def prepare(self) -> None:
        """Create the nodes with tables in sync; tickers and workers run."""
        ground, lab = self.ground, self.ground.lab
        ground.database(ROOT)
        with ground.open("leaf", "postgres") as admin:
            for name in PROVIDERS:
                admin.execute(f'create database "{name}" template "{ROOT}"')
        for name in (ROOT, *PROVIDERS):
            lab.worker_ini(name, self.connstr(name))
        lab.ticker_ini("root")
        lab.ticker_ini("leaf", name="pgqd_branch")
        lab.londiste(ROOT, "create-root", ROOT, self.connstr(ROOT))
        lab.londiste(ROOT, "add-table", *TABLES, timeout=600)
        lab.start_ticker()
        lab.start_ticker("pgqd_branch")
        lab.start_worker(ROOT)
        for name, above in PROVIDERS.items():
            kind = "branch" if name == BRANCH else "leaf"
            provider = f"--provider={self.connstr(above)}"
            lab.londiste(name, f"create-{kind}", name, self.connstr(name), provider)
            lab.londiste(name, "add-table", "--expect-sync", *TABLES)
            lab.start_worker(name)
        ground.work(ROOT, 20_000)
        self.all_seen(ground.mark(ROOT))

    def side(self, name: str) -> str:
        """Return the server of a node."""
        return "root" if name == ROOT else "leaf"

    def connstr(self, name: str) -> str:
        """Return the connect string of a node."""
        return self.ground.connstr(self.side(name), name)

    def seen(self, name: str, mark: str) -> None:
        """Wait until the marked row is on a node."""
        text = "select mod_time::text from user_info where userid = 1"
        deadline = SYSTEM.monotonic() + PATIENCE
        with self.ground.open(self.side(name), name) as db:
            while db.value(text) != mark:
                if SYSTEM.monotonic() > deadline:
                    raise StateError(f"{name}: not caught up after {PATIENCE:.0f} s")
                SYSTEM.sleep(0.01)

    def all_seen(self, mark: str) -> None:
        """Wait until the marked row is everywhere."""
        for name in PROVIDERS:
            self.seen(name, mark)

    def pause(self, name: str, on: bool) -> None:
        """Do what `pause` and `resume` do, without the time that a command takes to start."""
        with self.ground.open(self.side(name), name) as db:
            db.execute(f"select pgq_node.set_consumer_paused('{QUEUE}', '{name}', {on})")
            while not db.value("select bool_and(uptodate) from pgq_node.local_state"):
                SYSTEM.sleep(0.01)

    def cpu(self, side: str) -> float:
        """Read the seconds of CPU that a server has used, processes that have ended included."""
        server = self.ground.lab.servers[side]
        pid = int((server.data / "postmaster.pid").read_text().splitlines()[0])
        return sum(usage(pid)[1].values()) + _ended(pid)

    def apart(self, name: str) -> bool:
        """Has the provider of a node a server for itself, whose CPU can be told?"""
        return self.side(PROVIDERS[name]) != self.side(name)

    def whole_cpu(self, name: str) -> float:
        """Read the seconds of CPU of both servers and of all processes of a node's worker."""
        pid = int((self.ground.lab.base / "pid" / f"{name}.pid").read_text())
        worker = sum(usage(pid)[1].values()) + _ended(pid)
        return worker + sum(self.cpu(side) for side in self.ground.lab.servers)

    def verify(self) -> None:
        """Raise unless all nodes hold the same rows."""
        for table in TABLES:
            with self.ground.open("root", ROOT) as db:
                want = content(db, table)
            for name in PROVIDERS:
                with self.ground.open(self.side(name), name) as db:
                    if content(db, table) != want:
                        raise StateError(f"{name}: {table} differs from the root's")


def _ended(pid: int) -> float:
    """Read the seconds of CPU of a process's children that have ended."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[13]) + int(stat[14])) / os.sysconf("SC_CLK_TCK")


def catch_up(nodes: Cascade, events: int, order: list[str]) -> dict[str, dict[str, float]]:
    """Let nodes catch up with one backlog, one after the other: seconds, and seconds of CPU."""
    for name in PROVIDERS:
        nodes.pause(name, True)
    nodes.ground.work(ROOT, events)
    mark = nodes.ground.mark(ROOT)
    SYSTEM.sleep(4.0)  # the ticker has seen it
    nodes.ground.checkpoint()
    found = {}
    for name in order:
        side = nodes.side(PROVIDERS[name])
        provider, whole, began = nodes.cpu(side), nodes.whole_cpu(name), SYSTEM.monotonic()
        nodes.pause(name, False)
        nodes.seen(name, mark)
        seconds = SYSTEM.monotonic() - began
        SYSTEM.sleep(1.0)
        found[name] = {
            "seconds": seconds,
            "provider_cpu": nodes.cpu(side) - provider,
            "cpu": nodes.whole_cpu(name) - whole,
        }
        nodes.ground.checkpoint()
    return found


def hops(nodes: Cascade, seconds: float, rate: int) -> dict[str, dict[str, float]]:
    """Measure commit to visible on each node, and what the second hop adds, probe by probe."""
    sent: dict[int, float] = {}
    found: dict[str, dict[int, float]] = {name: {} for name in PROVIDERS}
    stop, over = threading.Event(), threading.Event()

    def send() -> None:
        with nodes.ground.open("root", ROOT) as db:
            while not stop.wait(0.05):
                number = int(db.value(PROBE))
                sent[number] = SYSTEM.monotonic()

    def look(name: str) -> None:
        with nodes.ground.open(nodes.side(name), name) as db:
            db.execute("create index if not exists probes on user_logout_rec (id) where userid = 0")
            text = "select coalesce(max(id), 0) from user_logout_rec where userid = 0"
            last = int(db.value(text))
            while not over.wait(0.005):
                for (number,) in db.query(LOOK, [last]):
                    found[name][number] = SYSTEM.monotonic()
                    last = number

    threads = [threading.Thread(target=look, args=(name,)) for name in PROVIDERS]
    sender = threading.Thread(target=send)
    with transactions(nodes.ground, ROOT, rate, seconds):
        for thread in threads:
            thread.start()
        SYSTEM.sleep(1.0)
        sender.start()
        SYSTEM.sleep(seconds)
        stop.set()
        sender.join()
    deadline = SYSTEM.monotonic() + 60
    while any(sent.keys() - seen.keys() for seen in found.values()):
        if SYSTEM.monotonic() > deadline:
            raise StateError("probes did not come within 60 s")
        SYSTEM.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join()
    measured = {name: quantiles([found[name][n] - sent[n] for n in sent]) for name in PROVIDERS}
    added = [max(0.0, found[BELOW][n] - found[BRANCH][n]) for n in sent]
    return measured | {"second hop": quantiles(added)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.cascade", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1, help="rounds that are not counted")
    parser.add_argument("--seconds", type=int, default=15, help="of probing in each round")
    parser.add_argument("--rate", type=int, default=500, help="transactions per second")
    args = parser.parse_args()
    ground = Field()
    report: dict[str, Any] = {key: getattr(args, key) for key in ("events", "warm", "rate")}
    report |= {"loads": [], "latency": []}
    rounds: list[dict[str, dict[str, float]]] = []
    try:
        with steps("cascade", 1 + args.warm + args.rounds) as bar:
            ground.start()
            nodes = Cascade(ground)
            nodes.prepare()
            bar.done("root, branch and leaves are ready")
            for number in range(1 - args.warm, args.rounds + 1):
                report["loads"] += [load_average()] if number > 0 else []
                order = [BRANCH, LEAF] if number % 2 else [LEAF, BRANCH]
                rounds.append(catch_up(nodes, args.events, [*order, BELOW]))
                report["latency"].append(hops(nodes, args.seconds, args.rate))
                nodes.all_seen(ground.mark(ROOT))
                nodes.verify()
                said = ", ".join(f"{n} {rounds[-1][n]['seconds']:.2f} s" for n in PROVIDERS)
                p50 = {n: f"{v['p50']:.3f}" for n, v in report["latency"][-1].items()}
                bar.done(f"round {number}: {said}; p50 {p50}")
    finally:
        ground.close()
    counted = rounds[args.warm :]
    report["latency"] = report["latency"][args.warm :]
    report["seconds"] = {name: [r[name]["seconds"] for r in counted] for name in PROVIDERS}
    report["provider_us_per_event"] = {
        name: [r[name]["provider_cpu"] / args.events * 1e6 for r in counted]
        for name in PROVIDERS
        if nodes.apart(name)
    }
    report["cpu_us_per_event"] = {
        name: [r[name]["cpu"] / args.events * 1e6 for r in counted] for name in PROVIDERS
    }
    report["catch_up"] = summary(report["seconds"], of=LEAF)
    ratios = [
        leaf / branch
        for leaf, branch in zip(report["seconds"][LEAF], report["seconds"][BRANCH], strict=True)
    ]
    report["rate_to_leaf"] = median(ratios)
    print(text_table("catching up", report["catch_up"], of=LEAF, events=args.events))
    print(f"\na branch's rate to a leaf's: {report['rate_to_leaf']:.2f}")
    for name in report["latency"][0]:
        p50, p99 = (median([r[name][key] for r in report["latency"]]) for key in ("p50", "p99"))
        print(f"visible after, {name}: p50 {p50:.3f} s, p99 {p99:.3f} s")
    for name, values in report["provider_us_per_event"].items():
        print(f"CPU of the provider's server for {name}: {median(values):.2f} µs an event")
    for name, values in report["cpu_us_per_event"].items():
        print(f"CPU of servers and worker for {name}: {median(values):.2f} µs an event")
    print(f"written: {save('cascade', report)}")


if __name__ == "__main__":
    main()
