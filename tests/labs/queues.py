"""Several queues, each from a database of its own, into databases of one server: whole programs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.pg import VERSIONS
from tests.fixtures.processes import children, word
from vedur import db as vdb
from vedur.demo.lab import Lab

SPARK = ""  # as an operator has it: a slot for each queue beyond the cores
EXTRA = {"loop_delay": "0.2", "exception_sleep": "2"}
#: Long enough for any machine; nothing waits for this time to pass.
PATIENCE = 300.0


@dataclass
class Queues:
    """Queue `qN` brings table `tN` from database `rN` to the database of its leaf, `lN`."""

    lab: Lab
    numbers: range
    apart: frozenset[int] = frozenset()  # leaves in a database of their own; the others are in one
    spark: str = SPARK
    extra: dict[str, str] = field(default_factory=dict)  # more keys for the ini of a leaf
    _rows: dict[int, int] = field(default_factory=dict)

    def build(self) -> None:
        """Make servers, nodes and tables; the ticker runs, no worker does."""
        lab = self.lab
        lab.server("site", VERSIONS[max(VERSIONS)], max_connections="200")
        for place in {self._leaf_db(n) for n in self.numbers}:
            lab.database("site", place, "app")
        lab.ticker_ini("site", {"check_period": "1", "syslog": "0"})
        for n in self.numbers:
            lab.database("site", f"r{n}", "app")
            lab.worker_ini(f"root{n}", self.root(n), EXTRA, self.spark, f"q{n}")
            lab.worker_ini(f"leaf{n}", self.leaf(n), EXTRA | self.extra, self.spark, f"q{n}")
            lab.londiste(f"root{n}", "create-root", f"root{n}", self.root(n))
            lab.londiste(
                f"leaf{n}", "create-leaf", f"leaf{n}", self.leaf(n), f"--provider={self.root(n)}"
            )
            with vdb.connect(self.root(n), autocommit=True) as db:
                db.execute(f"create table t{n} (id int primary key, v text)")
            self.write(n, 200)
            lab.londiste(f"root{n}", "add-table", f"t{n}")
        lab.start_ticker()
        for n in self.numbers:
            # It waits for no copy: workers may not run yet.
            lab.londiste(f"leaf{n}", "add-table", f"t{n}", "--create")

    def _leaf_db(self, n: int) -> str:
        return f"l{n}" if n in self.apart else "shards"

    def root(self, n: int) -> str:
        return self.lab.servers["site"].connstr(f"r{n}")

    def leaf(self, n: int) -> str:
        return self.lab.servers["site"].connstr(self._leaf_db(n))

    # -- rows -------------------------------------------------------------------------------------

    def write(self, n: int, count: int) -> None:
        """Insert rows, and change all that are there."""
        begin = self._rows.get(n, 0)
        self._rows[n] = begin + count
        with vdb.connect(self.root(n), autocommit=True) as db:
            text = f"insert into t{n} select i, 'new' from generate_series(%s::int, %s::int) i"
            db.execute(text, [begin, begin + count - 1])
            db.execute(f"update t{n} set v = v || '.'")

    def change(self, n: int, count: int) -> None:
        """Change rows, and take as many out and in again."""
        have = self._rows[n]
        with vdb.connect(self.root(n), autocommit=True) as db:
            db.execute(f"update t{n} set v = md5(random()::text) where id < %s", [count])
            db.execute(f"delete from t{n} where id >= %s", [have - count])
            text = f"insert into t{n} select i, 'new' from generate_series(%s::int, %s::int) i"
            db.execute(text, [have - count, have - 1])

    def tick(self, n: int) -> None:
        """Let the queue of a root have a tick of now."""
        with vdb.connect(self.root(n), autocommit=True) as db:
            db.value("select pgq.force_tick(%s)", [f"q{n}"])
            db.value("select pgq.ticker(%s)", [f"q{n}"])

    def equal(self, n: int) -> bool:
        """Are both sides the same, row by row?"""
        text = f"select md5(string_agg(t::text, ',' order by id)) from t{n} t"
        with vdb.connect(self.root(n)) as root, vdb.connect(self.leaf(n)) as leaf:
            return bool(root.value(text) == leaf.value(text))

    def wait_equal(self, *numbers: int) -> None:
        for n in numbers:
            self.wait(lambda n=n: self.equal(n), f"rows of q{n}")  # type: ignore[misc]

    def wait(self, done: Callable[[], object], what: str) -> None:
        self.lab.wait(done, what, PATIENCE)

    # -- workers ----------------------------------------------------------------------------------

    def inis(self, *numbers: int) -> list[str]:
        return [str(self.lab.inis[f"leaf{n}"]) for n in numbers]

    def start(self, *numbers: int) -> str:
        """Start one process for the leaves of these queues; returns what the starter says."""
        done = self.lab.run("londiste3", "-d", *self.inis(*numbers), "worker", timeout=PATIENCE)
        return done.stderr

    def ask(self, word: str, *numbers: int) -> None:
        self.lab.run("londiste3", word, *self.inis(*numbers))

    def pid(self, n: int) -> int | None:
        try:
            return int((self.lab.base / "pid" / f"leaf{n}.pid").read_text())
        except FileNotFoundError:
            return None

    def log(self, n: int) -> str:
        return self.lab.log_text(f"leaf{n}")

    def kill(self, pid: int) -> None:
        """Kill a process, and wait until nothing is left of it."""
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda: not Path(f"/proc/{pid}").exists(), "the end")


def javas(pid: int) -> list[int]:
    """The Java processes that a process has started."""
    return [child for child in children(pid) if word(child) == "java"]
