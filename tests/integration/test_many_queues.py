"""Several queues in one process, as an operator sees it. These are roots, which need no Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab
from vedur.demo.leftover import alive

NAMES = ("one", "two", "three")
QUICK = {"loop_delay": "0.02", "keepalive_stats": "3600", "exception_sleep": "1"}


class Site:
    """Three roots in one server, each with its own database, queue and ini."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        for name in NAMES:
            lab.database("root", name, name)
            self.write(name)
            lab.londiste(name, "create-root", name, self.connstr(name))

    def connstr(self, name: str) -> str:
        return self.lab.servers["root"].connstr(name)

    def write(
        self, name: str, extra: Mapping[str, str] | None = None, db: str = "", spark: str = ""
    ) -> None:
        keys = {**QUICK, **(extra or {})}
        self.lab.worker_ini(name, db or self.connstr(name), keys, spark, f"q_{name}")

    def inis(self, *names: str) -> list[str]:
        return [str(self.lab.inis[name]) for name in names]

    def start(self, *names: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        for name in names:
            (self.lab.base / "log" / f"{name}.log").unlink(missing_ok=True)
        return self.lab.run("londiste3", "-d", *self.inis(*names), "worker", check=check)

    def ask(self, word: str, *names: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run("londiste3", word, *self.inis(*names))

    def pid(self, name: str) -> int | None:
        try:
            return int((self.lab.base / "pid" / f"{name}.pid").read_text())
        except FileNotFoundError:
            return None

    def process(self) -> int:
        """The one process of all; fails where there are more."""
        found = {pid for name in NAMES if (pid := self.pid(name)) is not None}
        assert len(found) == 1, found
        return found.pop()

    def wait_for(self, name: str, text: str, count: int = 1) -> None:
        self.lab.wait(
            lambda: self.lab.log_text(name).count(text) >= count, f"{text!r} of {name}", 60.0
        )

    def wait_end(self, pid: int) -> None:
        self.lab.wait(lambda: not alive(pid), "the end", 60.0)

    def left(self) -> list[str]:
        """What is left beside the pidfiles."""
        return sorted(path.name for path in (self.lab.base / "pid").iterdir())


@pytest.fixture(scope="module")
def lab() -> Iterator[Site]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        lab.server("root", VERSIONS[max(VERSIONS)])
        yield Site(lab)
    finally:
        lab.close()


@pytest.fixture
def site(lab: Site) -> Iterator[Site]:
    """Nobody runs at the beginning and at the end."""
    for name in NAMES:
        lab.write(name)
        (lab.lab.base / "log" / f"{name}.log").unlink(missing_ok=True)
    yield lab
    for name in NAMES:
        lab.write(name)
    for pid in {pid for name in NAMES if (pid := lab.pid(name)) is not None}:
        if alive(pid):
            os.kill(pid, signal.SIGTERM)
            lab.wait_end(pid)
    for path in (lab.lab.base / "pid").iterdir():
        path.unlink()


def test_one_process_serves_all_and_each_has_its_log(site: Site) -> None:
    done = site.start(*NAMES)
    assert (done.stdout, done.stderr) == ("", "")
    pid = site.process()
    for name in NAMES:
        site.wait_for(name, "{standby: 1}")
        others = [f"q_{other}" for other in NAMES if other != name]
        assert not any(other in site.lab.log_text(name) for other in others)
    title = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    assert title == "vedur: workers one (q_one), two (q_two), three (q_three)"
    site.ask("-s", *NAMES)
    site.wait_end(pid)
    assert site.left() == []


def test_the_page_about_it(site: Site) -> None:
    """Its commands, typed in the directory of the ini files; the page has other names."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "many-queues.md"
    text = page.read_text("utf-8")
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.S))
    commands = re.findall(r"^\$ (.*)$", blocks, re.M)
    assert len(commands) == 7
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in commands:
        for number, name in enumerate(NAMES, 1):
            command = command.replace(f"shard{number}", name)
        before = site.pid("one")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=site.lab.base / "ini",
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command
        if re.search(r" -[sk] (one|\.)", command) and before is not None:
            site.wait_end(before)
    assert site.left() == []
    shown = (site.lab.base / "ini" / "all.txt").read_text()
    assert [f"Queue: q_{name} " in shown for name in NAMES] == [True] * 3


def test_one_is_stopped_and_the_others_go_on(site: Site) -> None:
    site.start(*NAMES)
    pid = site.process()
    site.ask("-s", "two")
    site.lab.wait(lambda: "two.pid.control" not in site.left(), "the socket of two to go", 60.0)
    assert site.pid("two") is None
    assert site.ask("-s", "two").stderr == "No pidfile, process not running\n"
    assert alive(pid) and site.process() == pid
    site.ask("-r", "one")
    site.wait_for("one", "Config reloaded")
    assert "Config reloaded" not in site.lab.log_text("three")
    # It can be started again, beside the others.
    site.start("two")
    again = site.pid("two")
    assert again not in (None, pid)
    os.kill(pid, signal.SIGHUP)  # to the process: all that are left
    site.wait_for("one", "Config reloaded", 2)
    site.wait_for("three", "Config reloaded")
    os.kill(pid, signal.SIGINT)
    site.wait_end(pid)
    assert site.pid("two") == again
    assert site.left() == ["two.pid"]


def test_kill_ends_one_at_once_and_the_process_with_the_last(site: Site) -> None:
    site.start(*NAMES)
    pid = site.process()
    # A statement that would last for an hour holds the worker of two.
    with vdb.connect(site.connstr("two")) as holder:
        holder.execute("lock table pgq_node.local_state in access exclusive mode")
        site.lab.wait(lambda: waits(site, "two"), "the worker to wait", 60.0)
        site.ask("-s", "two")
        assert site.pid("two") == pid
        site.ask("-k", "two")
        site.lab.wait(lambda: site.pid("two") is None, "the pidfile of two to go", 60.0)
    assert alive(pid)
    site.ask("-k", "one", "three")
    site.wait_end(pid)
    assert site.left() == []
    assert "crashed" not in site.lab.log_text("two")


def waits(site: Site, name: str) -> bool:
    with vdb.connect(site.connstr("postgres"), autocommit=True) as db:
        text = "select 1 from pg_stat_activity where datname = %s and wait_event_type = 'Lock'"
        return bool(db.value(text, [name]))


def test_a_process_that_was_killed_is_started_again(site: Site) -> None:
    site.start(*NAMES)
    pid = site.process()
    os.kill(pid, signal.SIGKILL)
    site.lab.wait(lambda: not Path(f"/proc/{pid}").exists(), "the end", 60.0)
    assert len(site.left()) == 6
    assert site.ask("-s", "one").stderr == "pidfile exists, but process not running\n"
    site.start(*NAMES)
    assert site.process() != pid


@pytest.mark.draw(2)
@pytest.mark.parametrize("action", ["kill", "error"])
@pytest.mark.parametrize("point", ["queues.claimed", "queues.begun", "queues.left"])
def test_whatever_breaks_the_next_start_works(site: Site, point: str, action: str) -> None:
    control = site.lab.base / "scratch" / "control"
    control.write_text(json.dumps({"point": point, "action": action}))
    words = [sys.executable, "-m", "tests.torture.entry", str(control), "londiste3"]
    process = subprocess.Popen([*words, *site.inis("one", "two"), "worker"], stderr=DEVNULL)
    try:
        if point == "queues.left":
            site.lab.wait(lambda: site.pid("two"), "the start", 60.0)
            site.wait_for("one", "{standby: 1}")
            site.ask("-s", "one")
            if action == "error":  # the other goes on, and what was left is removed
                site.lab.wait(lambda: site.pid("one") is None, "the end of one", 60.0)
                site.ask("-s", "two")
        assert process.wait(60) == (-signal.SIGKILL if action == "kill" else process.returncode)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert Path(f"{control}.fired").exists()
    assert bool(site.left()) == (action == "kill")
    site.start("one", "two")
    assert site.process() != process.pid


def test_a_directory_of_ini_files_is_all_of_them(site: Site) -> None:
    site.lab.ticker_ini("root")
    site.lab.run("londiste3", "-d", str(site.lab.base / "ini"), "worker")
    pid = site.process()
    done = site.lab.run("londiste3", str(site.lab.base / "ini"), "status")
    assert [line for line in done.stdout.splitlines() if line.startswith("Queue:")] == [
        "Queue: q_one   Local node: one",
        "Queue: q_three   Local node: three",
        "Queue: q_two   Local node: two",
    ]
    site.lab.run("londiste3", "-s", str(site.lab.base / "ini"))
    site.wait_end(pid)


def test_a_broken_queue_holds_nobody(site: Site) -> None:
    """It is told to the starter, shown by status, and served as soon as it can be."""
    site.write("two", db=f"{site.connstr('two')} password=secret".replace("two", "nowhere"))
    done = site.start(*NAMES)
    assert done.stderr.startswith(f'queue "q_two" ({site.lab.inis["two"]}): connection failed')
    assert done.stderr.endswith("; it is tried again\n")
    assert "secret" not in done.stderr
    for name in ("one", "three"):
        site.wait_for(name, "{standby: 1}")
    site.wait_for("two", "crashed", 2)
    status = site.lab.run("londiste3", *site.inis(*NAMES), "status", check=False)
    assert status.returncode == 5
    assert "Queue: q_one " in status.stdout and "Queue: q_three " in status.stdout
    assert 'queue "q_two"' in status.stderr and "secret" not in status.stderr
    told = site.lab.run("londiste3", *site.inis(*NAMES), "status", "--json", check=False)
    assert '"unreadable": ' in told.stdout
    site.write("two")
    site.ask("-r", "two")
    site.wait_for("two", "{standby: 1}")


def test_no_queue_that_can_be_served_fails_the_start(site: Site) -> None:
    for name in ("one", "two"):
        site.write(name, db=site.connstr("postgres"))
    site.lab.worker_ini("one", site.connstr("postgres"), QUICK, queue="q_none")
    site.lab.worker_ini("two", site.connstr("postgres"), QUICK, queue="q_neither")
    done = site.start("one", "two", check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("no queue can be served: queue ")
    assert "q_none" in done.stderr and "q_neither" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    site.lab.wait(lambda: site.left() == [], "pidfiles to go", 60.0)


@pytest.mark.parametrize(
    ("extra", "spark", "said"),
    [
        ({"max_connections_per_node": "3"}, "", 'differ in "max_connections_per_node"'),
        ({}, "[spark]\nspark.driver.memory = 1g\n", "differ in [spark]"),
        ({"use_skylog": "2"}, "", '"use_skylog" directs the log of a whole process'),
        ({"parallel_copies": "many"}, "", 'bad value "many" for "parallel_copies"'),
    ],
    ids=["connections", "spark", "skylog", "broken"],
)
def test_ini_files_that_do_not_go_together_start_nothing(
    site: Site, extra: dict[str, str], spark: str, said: str
) -> None:
    site.write("two", extra, spark=spark)
    done = site.start(*NAMES, check=False)
    assert done.returncode == 2
    assert said in done.stderr and "two.ini" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert site.left() == []


def test_a_queue_that_runs_already_starts_nothing(site: Site) -> None:
    site.start("two")
    done = site.start(*NAMES, check=False)
    assert done.returncode == 1
    assert "two.pid); no queue was started" in done.stderr
    assert site.left() == ["two.pid"]


def test_a_reload_that_does_not_go_together_is_refused(site: Site) -> None:
    site.start("one", "two")
    log = site.lab.base / "log" / "one.log"
    ini = site.lab.inis["two"]
    ini.write_text(ini.read_text().replace("log/two.log", "log/one.log"))
    site.ask("-r", "two")
    site.wait_for("two", "going on with the old settings")
    assert 'have the same "logfile"' in site.lab.log_text("two")
    assert "going on" not in log.read_text()


def test_a_socket_that_was_removed_comes_back(site: Site) -> None:
    """A request that finds none would be a signal, which is for all."""
    site.start("one", "two")
    pid = site.process()
    socket = site.lab.base / "pid" / "one.pid.control"
    socket.unlink()
    site.lab.wait(socket.exists, "the socket", 60.0)
    site.wait_for("one", "listening there again")
    site.ask("-s", "one")
    site.lab.wait(lambda: site.pid("one") is None, "the pidfile of one to go", 60.0)
    assert alive(pid)


def test_in_front_lines_have_the_name_of_their_job(site: Site) -> None:
    for name in ("one", "two"):
        site.write(name, {"loop_delay": "0"})
    done = site.lab.run("londiste3", *site.inis("one", "two"), "worker")
    for name in ("one", "two"):
        assert f"INFO [{name}] {{standby: 1}}" in done.stderr
    assert site.left() == []
