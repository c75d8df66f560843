"""`python -m tests.torture.soak --minutes 30`: no faults, as much load as the machine sustains.

First the rate is looked for: the largest at which the leaf's lag stays bounded. Then that load runs
for the asked time while lag, memory and sizes are written down every few seconds; where the lag
grows all the same, the rate steps down, and the record says so. At the end the leaf catches up and
`compare` must find both sides equal. Writes bench/results/load.json and docs/images/load.svg;
`python -m tests.torture.report` makes the paragraph of docs/reliability.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.field import content, load_average
from bench.watch import tree
from tests.torture.soak_plot import draw
from vedur import db as vdb
from vedur.demo.lab import QUEUE, Lab, sql_text
from vedur.demo.server import Server, available
from vedur.demo.story import KEYS, OWNER, TABLES

HERE = Path(__file__).resolve().parents[2]
RESULT = HERE / "bench" / "results" / "load.json"
PLOT = HERE / "docs" / "images" / "load.svg"
DBNAME = "digoal_01"
ROOT, LEAF = "root", "leaf"
USERS = 20_000
#: Lag that a sustained load may have, in seconds; ticks and commits of batches are below it.
BOUND = 5.0
_SERVER = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "15s",
}
#: A table is rotated once all nodes have told that they are past it: often, so that it shows.
_WORKER = {"global_wm_publish_period": "10", "local_wm_publish_period": "10"}
#: Rows that change their key, grow, shrink and go; the two scripts of the walk-through only add.
#: Each of the four clients has keys of its own: a conflict would end it.
_CHURN = """\\set id 4 * random(1, :users / 4) + :client_id
\\set moved :id % 400
\\set place - :moved
begin;
insert into item (id, n, note) values (:id, 0, repeat('x', :id % 900))
    on conflict (id) do update set n = item.n + 1, note = repeat('y', :id % 700);
delete from item where id = :place;
update item set id = :place where id = :moved;
delete from item where id = :id - 4000;
end;
"""
_ITEM = "create table item (id int primary key, n int not null, note text)"
_POSITION = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
_LAG = """
select extract(epoch from clock_timestamp() - t.tick_time)::float8 as seconds,
    (select max(tick_event_seq) from pgq.tick where tick_queue = q.queue_id)
        - t.tick_event_seq as events,
    q.queue_switch_step1 as switched,
    (select sum(pg_total_relation_size(inhrelid)) from pg_inherits
     where inhparent = q.queue_data_pfx::regclass) as queue_bytes
from pgq.queue q join pgq.tick t on t.tick_queue = q.queue_id and t.tick_id = %s
where q.queue_name = %s
"""
_STAGED = """
select coalesce(sum(pg_total_relation_size(c.oid)), 0) as bytes from pg_class c
where c.relkind = 'r' and c.relnamespace = 'vedur_work'::regnamespace and c.relname like 'stage%'
"""
Sample = dict[str, float]


def resident(pid: int, key: str = "VmRSS") -> float:
    """Megabytes of one process; 0 where it has just ended."""
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def children_of(pid: int) -> list[int]:
    """Processes that a postmaster has started."""
    return [p for p in tree(pid) if p != pid]


@dataclass
class Site:
    """Two servers, two nodes, the tables, and what is measured on them."""

    lab: Lab = field(default_factory=Lab)
    rotations: int = 0
    _switched: int | None = None

    def start(self) -> Site:
        """Everything runs and is in sync at the end of this."""
        lab, found = self.lab, available()
        lab.server(ROOT, found.get(16) or found[min(found)], **_SERVER)
        lab.server(LEAF, found[max(found)], **_SERVER)
        for side in (ROOT, LEAF):
            lab.database(side, DBNAME, OWNER)
            lab.psql(side, DBNAME, sql_text("schema.sql") + _ITEM, user=OWNER)
            for table in ("user_login_rec", "user_logout_rec"):
                lab.psql(side, DBNAME, KEYS.format(table), user=OWNER)
        lab.psql(ROOT, DBNAME, sql_text("users.sql"), user=OWNER, users=str(USERS))
        for side in (ROOT, LEAF):
            lab.worker_ini(side, self.connstr(side), _WORKER)
        lab.ticker_ini(ROOT, {"maint_period": "10"})
        lab.londiste(ROOT, "create-root", ROOT, self.connstr(ROOT))
        provider = f"--provider={self.connstr(ROOT)}"
        lab.londiste(LEAF, "create-leaf", LEAF, self.connstr(LEAF), provider)
        self.root, self.leaf = (
            vdb.connect(self.connstr(side), autocommit=True) for side in (ROOT, LEAF)
        )
        self.root.execute("update pgq.queue set queue_rotation_period = '30 seconds'")
        lab.start_ticker()
        lab.start_worker(ROOT)
        lab.start_worker(LEAF)
        for side in (ROOT, LEAF):
            lab.londiste(side, "add-table", *self.names)
        lab.londiste(LEAF, "wait-sync", timeout=300)
        return self

    @property
    def names(self) -> list[str]:
        """The tables of the set."""
        return [f"{OWNER}.{t}" for t in (*TABLES, "item")]

    def connstr(self, side: str) -> str:
        """How to reach a node's database."""
        return self.lab.servers[side].connstr(DBNAME)

    def pid(self, ini: str) -> int:
        """A daemon's process."""
        return int((self.lab.base / "pid" / f"{ini}.pid").read_text())

    def load(self, rate: int, seconds: int) -> Load:
        """Start pgbench with the three scripts."""
        host, base = self.lab.servers[ROOT], self.lab.base
        command = [
            host.binaries.path("pgbench"), "-n", "-M", "prepared", "-c", "4", "-j", "1",
            "-R", str(rate), "-T", str(seconds), "-D", f"users={USERS}", "--max-tries", "10",
            "-h", "127.0.0.1", "-p", str(host.port), "-U", OWNER,
        ]  # fmt: skip
        texts = {n: sql_text(n) for n in ("login.sql", "logout.sql")} | {"churn.sql": _CHURN}
        for name, text in texts.items():
            (base / name).write_text(text)
            command += ["-f", str(base / name)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return Load(rate, subprocess.Popen([*command, DBNAME], **pipes))  # type: ignore[call-overload]

    def sample(self) -> Sample:
        """Lag, sizes and memory of this moment."""
        tick = self.leaf.value(_POSITION, [LEAF])
        row = self.root.one(_LAG, [tick, QUEUE])
        if self._switched is not None and row.switched != self._switched:
            self.rotations += 1
        self._switched = row.switched
        found: Sample = {
            "lag": round(row.seconds, 2),
            "events": int(row.events),
            "queue_mb": round(int(row.queue_bytes) / 2**20, 1),
            "stage_mb": round(int(self.leaf.value(_STAGED)) / 2**20, 1),
            "rotations": self.rotations,
        }
        return found | self._memory()

    def _memory(self) -> Sample:
        roles: Sample = {"driver": 0.0, "java": 0.0, "tasks": 0.0}
        for pid, role in tree(self.pid(LEAF)).items():
            roles["tasks" if role == "task" else role] += resident(pid)
        roles["root_worker"] = resident(self.pid(ROOT))
        roles["ticker"] = resident(self.pid("pgqd"))
        for side, server in self.lab.servers.items():
            # shared buffers fill up and belong to all: a backend's own memory is what can grow
            pids = children_of(postmaster(server))
            roles[f"pg_{side}"] = sum(resident(pid, "RssAnon") for pid in pids)
        return {f"mb_{role}": round(size, 1) for role, size in roles.items()}

    def prove(self) -> dict[str, Any]:
        """Let the leaf catch up; both sides must hold the same, by `compare` and by own sums."""
        began = time.monotonic()
        self.lab.londiste(LEAF, "wait-root", timeout=1800)
        caught_up = time.monotonic() - began
        done = self.lab.londiste(LEAF, "compare", check=False, timeout=1800)
        rows = 0
        for name in self.names:
            here, there = content(self.root, name), content(self.leaf, name)
            if here != there:
                raise SystemExit(f"{name} differs: {here} and {there}")
            rows += here[0]  # type: ignore[index]
        if done.returncode != 0:
            raise SystemExit(f"compare: exit {done.returncode}: {done.stdout}{done.stderr}")
        return {"caught_up_seconds": round(caught_up, 1), "rows": rows, "compare": "equal"}

    def close(self) -> None:
        """Nothing is left."""
        for db in (getattr(self, "root", None), getattr(self, "leaf", None)):
            if db is not None:
                db.close()
        self.lab.close()


def postmaster(server: Server) -> int:
    """Its process; a campaign without one has ended."""
    pid = server.postmaster_pid
    if pid is None:
        raise SystemExit("a server has gone")
    return pid


@dataclass
class Load:
    """A pgbench that runs."""

    rate: int
    process: subprocess.Popen[str]

    @property
    def running(self) -> bool:
        """Not yet at its end?"""
        return self.process.poll() is None

    def transactions(self) -> int:
        """Wait for its end; how many it made."""
        said, _ = self.process.communicate(timeout=120)
        found = re.search(r"transactions actually processed: (\d+)", said)
        if self.process.returncode or not found:
            raise SystemExit(f"pgbench failed: {said[-500:]}")
        return int(found[1])

    def stop(self) -> None:
        """End it now."""
        self.process.terminate()
        self.process.communicate(timeout=60)


def grows(lags: list[float], bound: float = BOUND) -> bool:
    """Does the lag get away? Its last third is above the bound, and above the third before."""
    third = max(1, len(lags) // 3)
    last, before = lags[-third:], lags[-2 * third : -third] or lags[:1]
    return min(last) > bound and sum(last) / len(last) > sum(before) / len(before)


def find_rate(site: Site, first: int, seconds: int) -> tuple[int, list[dict[str, Any]]]:
    """The largest rate of a ladder at which the lag stays bounded, and how each step went."""
    steps: list[dict[str, Any]] = []
    rate, good = first, 0
    while True:
        load, lags = site.load(rate, seconds), []
        while load.running:
            time.sleep(1.0)
            lags.append(site.sample()["lag"])
        reached = load.transactions() / seconds
        bounded = not grows(lags) and lags[-1] <= BOUND
        kept_up = reached >= 0.9 * rate
        step = {"rate": rate, "reached": round(reached), "max_lag": max(lags), "bounded": bounded}
        steps.append(step)
        print(f"rate {rate}: {step}", flush=True)
        site.lab.londiste(LEAF, "wait-root", timeout=900)
        if not bounded or not kept_up:
            # where pgbench itself could not make more, what it made was sustained
            return (good or (round(reached) if bounded else max(50, rate // 2))), steps
        good, rate = rate, int(rate * 1.5)


def soak(site: Site, rate: int, minutes: float, every: float) -> dict[str, Any]:
    """Run the load and write samples down; steps down where the lag grows."""
    samples: list[Sample] = []
    downs: list[dict[str, float]] = []
    began = time.monotonic()
    end = began + minutes * 60
    load = site.load(rate, int(minutes * 60))
    recent: list[float] = []
    while time.monotonic() < end and load.running:
        time.sleep(every)
        now = round(time.monotonic() - began, 1)
        found = {"t": now, "rate": rate, **site.sample()}
        samples.append(found)
        recent = [*recent, found["lag"]][-int(60 / every) :]
        if len(recent) >= 60 / every and grows(recent, 2 * BOUND):
            load.stop()
            rate = int(rate * 0.85)
            downs.append({"t": now, "rate": rate})
            print(f"{now:.0f} s: lag {found['lag']} s grows, down to {rate}/s", flush=True)
            load, recent = site.load(rate, max(5, int(end - time.monotonic()))), []
    load.transactions()
    columns = {key: [s[key] for s in samples] for key in samples[0]}
    return {"columns": columns, "downs": downs}


def main() -> int:
    """Find the rate, run, prove, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, help="transactions a second; else it is looked for")
    parser.add_argument("--first", type=int, default=200, help="where the search begins")
    parser.add_argument("--step", type=int, default=20, help="seconds of each step of the search")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--plot", type=Path, default=PLOT)
    args = parser.parse_args()
    site = Site()
    try:
        site.start()
        load_before = load_average()
        rate, steps = (args.rate, []) if args.rate else find_rate(site, args.first, args.step)
        events = "select last_value from " + str(
            site.root.value("select queue_event_seq from pgq.queue")
        )
        before, site.rotations = int(site.root.value(events)), 0
        found = soak(site, rate, args.minutes, args.every)
        report: dict[str, Any] = {
            "minutes": args.minutes,
            "rate": rate,
            "steps": steps,
            "servers": {side: s.version for side, s in site.lab.servers.items()},
            "cpus": os.cpu_count(),
            "machine": {"before": load_before, "after": load_average()},
            "events": int(site.root.value(events)) - before,
            **found,
            "proof": site.prove(),
        }
    finally:
        site.close()
    args.result.write_text(compact(report) + "\n")
    args.plot.write_text(draw(report))
    print(f"written: {args.result}, {args.plot}")
    return 0


def compact(report: dict[str, Any]) -> str:
    """JSON with a line for each column of the samples."""
    text = json.dumps({**report, "columns": {}}, indent=1)
    lines = [f'  "{key}": {json.dumps(values)}' for key, values in report["columns"].items()]
    return text.replace('"columns": {}', '"columns": {\n' + ",\n".join(lines) + "\n }")


if __name__ == "__main__":
    sys.exit(main())
