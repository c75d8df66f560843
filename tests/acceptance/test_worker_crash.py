"""Processes of a worker that die under load: the worker itself, its Java, Spark's Python.

After each the data of both sides is equal row by row. The load counts logins in `user_session` and
appends to a log table, so a change applied twice or not at all shows.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from tests.fixtures.processes import children, word
from vedur import db as vdb
from vedur.demo.lab import QUEUE, Lab, sql_text
from vedur.demo.story import KEYS, LEAF, OWNER, ROOT, TABLES, content
from vedur.tables.stages import stage_prefix

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]

USERS = 2_000
NAMES = [f"{OWNER}.{t}" for t in TABLES]
#: Java is started many times here: let it start quickly.
SPARK = "[spark]\nspark.driver.extraJavaOptions = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"


def java_of(worker: int) -> int | None:
    return next((p for p in children(worker) if word(p) == "java"), None)


def tasks_of(worker: int, java: int) -> list[int]:
    """Spark's Python workers: children of the daemon, which the worker has started, or Java."""
    daemons = {*children(worker), *children(java)} - {java}
    return [task for daemon in sorted(daemons) for task in children(daemon)]


class Site:
    """A root and a leaf with four tables, their daemons running."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.root = lab.servers["root"].connstr("digoal_01")
        self.leaf = lab.servers["leaf"].connstr("digoal_01")

    @property
    def worker(self) -> int:
        return int((self.lab.base / "pid" / f"{LEAF}.pid").read_text())

    @property
    def java(self) -> int | None:
        return java_of(self.worker)

    def wait(self, done: Callable[[], object], what: str, timeout: float = 300.0) -> None:
        self.lab.wait(done, what, timeout)

    def log(self, since: int = 0) -> str:
        return self.lab.log_text(LEAF)[since:]

    def under_load(self, act: Callable[[], None]) -> None:
        """Run `act` while changes arrive on the leaf, then let it catch up and compare."""
        rate = ("-T", "600", "-R", "100")
        clients = [
            self.lab.pgbench("root", "digoal_01", script, *rate, user=OWNER, users=USERS)
            for script in ("login.sql", "logout.sql")
        ]
        try:
            before = self.arrived()
            self.wait(lambda: self.arrived() > before, "the first changes")
            act()
            before = self.arrived()
            self.wait(lambda: self.arrived() > before, "changes after it")
            assert [client.poll() for client in clients] == [None, None]
        finally:
            for client in clients:
                client.terminate()
                client.communicate(timeout=60)
        self.caught_up()
        self.assert_equal()

    def arrived(self) -> int:
        with vdb.connect(self.leaf) as db:
            found: int = db.value(f"select count(*) from {OWNER}.user_login_rec")
            return found

    def caught_up(self) -> None:
        self.lab.londiste(LEAF, "wait-root", timeout=240)

    def assert_equal(self) -> None:
        with vdb.connect(self.root) as root, vdb.connect(self.leaf) as leaf:
            for name in NAMES:
                assert content(root, name, "true") == content(leaf, name, "true"), name

    def staging(self) -> set[str]:
        """Staging tables on the leaf, those of first copies included."""
        text = (
            "select relname from pg_class where relkind = 'r' and relnamespace = %s::regnamespace"
        )
        with vdb.connect(self.leaf) as db:
            return {row.relname for row in db.query(text, ["vedur_work"])}

    def own_staging(self) -> set[str]:
        """Those that a worker without a first copy in hand may have: two slots a table."""
        oids = "select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        oids += "where c.relkind = 'r' and n.nspname = %s"
        with vdb.connect(self.leaf) as db:
            marks = ["log", *(str(row.oid) for row in db.query(oids, [OWNER]))]
        return {f"{stage_prefix(QUEUE)}{mark}_{slot}" for mark in marks for slot in (0, 1)}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        yield _set_up(lab)
    finally:
        print(lab.log_text(LEAF)[-20_000:])  # shown where a test fails
        lab.close()


def _set_up(lab: Lab) -> Site:
    lab.server("root", VERSIONS[min(VERSIONS)])
    lab.server("leaf", VERSIONS[max(VERSIONS)])
    for side in ("root", "leaf"):
        lab.database(side, "digoal_01", OWNER)
        lab.psql(side, "digoal_01", sql_text("schema.sql"), user=OWNER)
        for table in ("user_login_rec", "user_logout_rec"):
            lab.psql(side, "digoal_01", KEYS.format(table), user=OWNER)
    lab.psql("root", "digoal_01", sql_text("users.sql"), user=OWNER, users=str(USERS))
    site = Site(lab)
    lab.worker_ini(ROOT, site.root)
    lab.worker_ini(LEAF, site.leaf, {"parallel_copies": "4"}, spark=SPARK)
    lab.ticker_ini("root")
    lab.londiste(ROOT, "create-root", ROOT, site.root)
    lab.londiste(LEAF, "create-leaf", LEAF, site.leaf, f"--provider={site.root}")
    lab.start_ticker()
    lab.start_worker(ROOT)
    lab.start_worker(LEAF)
    lab.londiste(ROOT, "add-table", *NAMES)
    lab.londiste(LEAF, "add-table", *NAMES)
    lab.londiste(LEAF, "wait-sync", timeout=240)
    return site


@pytest.mark.draw("programs")
def test_the_worker_is_killed(site: Site) -> None:
    lab, java = site.lab, site.java
    assert java is not None

    def kill() -> None:
        seen, dead = len(lab.log_text(LEAF)), site.worker
        os.kill(dead, signal.SIGKILL)
        site.wait(lambda: not Path(f"/proc/{java}").exists(), "its Java to end")
        assert site.worker == dead, "a killed process cannot remove its pidfile"
        lab.start_worker(LEAF)
        assert site.worker != dead
        assert "Ignoring stale pidfile" in site.log(seen)

    site.under_load(kill)
    left = site.staging() - site.own_staging()
    orders = {name for name in left if re.search("_orders_[0-9a-f]{16}$", name)}
    assert left == orders and len(orders) <= 1, "that of the resident task, while it is there"


@pytest.mark.draw("programs")
def test_its_java_is_killed_under_load(site: Site) -> None:
    worker, java, seen = site.worker, site.java, len(site.log())
    assert java is not None

    def kill() -> None:
        os.kill(java, signal.SIGKILL)
        site.wait(lambda: site.java not in (None, java), "another Java")

    site.under_load(kill)
    assert site.worker == worker
    said = site.log(seen)
    assert f"ERROR Job {LEAF} crashed: Spark has ended on its own: it is started again" in said
    assert f"{LEAF}.log.spark" in said
    assert "Traceback" not in said
    assert "ERR" not in site.lab.londiste(ROOT, "status").stdout


@pytest.mark.long
def test_its_java_is_killed_while_nothing_happens(site: Site) -> None:
    """That an idle worker looks at all is in tests/integration/test_spark_lost.py."""
    site.caught_up()
    worker, java = site.worker, site.java
    assert java is not None
    os.kill(java, signal.SIGKILL)
    site.wait(lambda: site.java not in (None, java), "another Java")
    assert site.worker == worker
    site.under_load(lambda: None)


@pytest.mark.draw("programs")
def test_sparks_python_is_killed(site: Site) -> None:
    """The task is run again: the batch does not even fail."""
    seen = len(site.log())

    def kill_one_round() -> bool:
        java = site.java
        tasks = tasks_of(site.worker, java) if java else []
        for task in tasks:
            os.kill(task, signal.SIGKILL)
        return bool(tasks)

    def kill() -> None:
        for _ in range(3):  # a task may fail four times: let each batch lose one attempt
            site.wait(kill_one_round, "Spark's Python workers")
            before = site.arrived()
            site.wait(lambda before=before: site.arrived() > before, "changes after it")

    site.under_load(kill)
    assert f"Job {LEAF} crashed" not in site.log(seen)
    # what Spark says about it has a file of its own: every line of the log is ours
    assert "Lost task" in (site.lab.base / "log" / f"{LEAF}.log.spark").read_text()
    ours = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ \d+ [A-Z]+ ")
    assert [line for line in site.log().splitlines() if not ours.match(line)] == []


@pytest.mark.long
def test_its_java_is_killed_in_a_first_copy(site: Site) -> None:
    """What a copy makes of its end at any step is in tests/integration/test_copy_crash.py."""
    lab = site.lab
    rows = 400_000
    text = "create table digoal_01.big (id int primary key, v text)"
    lab.psql("root", "digoal_01", text, user=OWNER)
    lab.psql("leaf", "digoal_01", text, user=OWNER)
    fill = f"insert into digoal_01.big select i, repeat('x', 200) from generate_series(1, {rows}) i"
    lab.psql("root", "digoal_01", fill, user=OWNER)
    lab.londiste(ROOT, "add-table", f"{OWNER}.big")
    java = site.java
    assert java is not None

    def copying() -> bool:
        progress = "select step_name from vedur.copy_progress where table_name = %s"
        with vdb.connect(site.leaf) as db:
            return db.value(progress, [f"{OWNER}.big"]) == "load"

    def kill() -> None:
        lab.londiste(LEAF, "add-table", f"{OWNER}.big")
        site.wait(copying, "the copy")
        os.kill(java, signal.SIGKILL)
        lab.londiste(LEAF, "wait-sync", timeout=240)

    site.under_load(kill)
    with vdb.connect(site.root) as root, vdb.connect(site.leaf) as leaf:
        want = content(root, f"{OWNER}.big", "true")
        assert content(leaf, f"{OWNER}.big", "true") == want
        index = "select count(*) from pg_index where indrelid = 'digoal_01.big'::regclass"
        assert leaf.value(index) == 1
    site.wait(lambda: site.staging() <= site.own_staging(), "the copy's staging tables to go")


@pytest.mark.draw("programs")
def test_a_stopped_worker_takes_its_java_along_and_one_without_java_says_so(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, java, worker = site.lab, site.java, site.worker
    assert java is not None
    title = Path(f"/proc/{worker}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert title == f"vedur: worker {LEAF} ({QUEUE})"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    # Another Java than its first is there by now; compare has the use of it, and needs none itself.
    lent = lab.base / "pid" / f"{LEAF}.pid.sock"
    assert lent.is_socket()
    done = lab.londiste(LEAF, "compare", NAMES[0], "--rows", timeout=300)
    assert "dstdb: " in done.stdout + done.stderr
    lab.stop_daemon(LEAF)
    site.wait(lambda: not Path(f"/proc/{java}").exists(), "its Java to end")
    assert not lent.exists()
    words = ("-d", str(lab.inis[LEAF]), "worker")
    done = lab.run("londiste3", *words, check=False, timeout=300.0)
    assert done.returncode != 0
    assert "java" in done.stderr.lower() and "Traceback" not in done.stderr
    assert not (lab.base / "pid" / f"{LEAF}.pid").exists()
    monkeypatch.undo()
    lab.start_worker(LEAF)
    site.under_load(lambda: None)
