"""`-r`: a running worker takes up its ini again, or says why it does not and goes on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab

ROOT = "src"
#: A root looks every tenth loop_delay.
QUICK = {"loop_delay": "0.02", "keepalive_stats": "3600"}


class Root:
    """The worker of a root, which needs no Spark. What is waited for counts from `begin`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.db = lab.servers["root"].connstr("shop")
        self._from = 0
        self.write(QUICK)
        lab.londiste(ROOT, "create-root", ROOT, self.db)
        lab.start_worker(ROOT)

    def begin(self) -> None:
        """The settings of every test's beginning."""
        self.write(QUICK)
        self._from = len(self.lab.log_text(ROOT))
        self.reload()
        self.wait_for("Config reloaded")
        self._from = len(self.lab.log_text(ROOT))

    def write(self, keys: Mapping[str, str], db: str | None = None) -> None:
        self.lab.worker_ini(ROOT, db or self.db, keys)

    def reload(self) -> None:
        done = self.lab.run("londiste3", "-r", str(self.lab.inis[ROOT]))
        assert done.stdout == ""

    def hang_up(self) -> None:
        """As `-r`, which reads the ini itself and would find the mistake first."""
        os.kill(int((self.lab.base / "pid" / f"{ROOT}.pid").read_text()), signal.SIGHUP)

    @property
    def said(self) -> str:
        return self.lab.log_text(ROOT)[self._from :]

    def wait_for(self, text: str, count: int = 1) -> None:
        self.lab.wait(lambda: self.said.count(text) >= count, f"{count} of {text!r}", 60.0)

    def names(self) -> set[str]:
        """Application names of the sessions in its database."""
        text = "select application_name from pg_stat_activity where datname = current_database()"
        with vdb.connect(self.db) as db:
            return {row.application_name for row in db.query(text)}


@pytest.fixture(scope="module")
def running() -> Iterator[Root]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        lab.server("root", VERSIONS[max(VERSIONS)])
        lab.database("root", "shop", "shop")
        root = Root(lab)
        yield root
        root.write(QUICK)  # `-s` reads the ini, too
    finally:
        lab.close()


@pytest.fixture
def root(running: Root) -> Root:
    running.begin()
    return running


def test_new_settings_take_effect(root: Root) -> None:
    root.write({**QUICK, "keepalive_stats": "0.1"})
    root.reload()
    root.wait_for("Config reloaded")
    root.wait_for("{standby: 1}", 3)


def test_a_new_connect_string_takes_effect(root: Root) -> None:
    root.write(QUICK, f"{root.db} application_name=moved")
    root.reload()
    root.lab.wait(lambda: "moved" in root.names(), "a session of the new connect string", 60.0)


def test_a_new_log_file_takes_effect(root: Root) -> None:
    root.write({**QUICK, "keepalive_stats": "0.1"})
    ini = root.lab.inis[ROOT]
    ini.write_text(ini.read_text().replace(f"log/{ROOT}.log", "log/other.log"))
    root.reload()
    other = root.lab.base / "log" / "other.log"
    root.lab.wait(
        lambda: other.exists() and other.read_text().count("{standby: 1}") > 1, "the log", 60.0
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"loop_delay": "-1"}, 'bad value "-1" for "loop_delay", expected a number of seconds, 0'),
        ({"parallel_copies": "many"}, 'bad value "many" for "parallel_copies"'),
        ({"remote_extra_connstr": "user"}, "connect string cannot be parsed"),
        ({"log_size": "1", "logfile": "/nowhere/x.log"}, "option 'logfile'"),
    ],
    ids=["loop_delay", "number", "connstr", "twice"],
)
def test_a_broken_ini_leaves_the_old_settings(root: Root, keys: dict[str, str], said: str) -> None:
    root.write({"keepalive_stats": "0.1", "loop_delay": "0.02"})
    root.reload()
    root.wait_for("Config reloaded")
    root.write({"keepalive_stats": "3600", **keys})
    root.hang_up()
    root.wait_for("; going on with the old settings")
    lines = [x for x in root.said.splitlines() if "going on with the old" in x]
    assert said in lines[0]
    assert re.match(r"\S+ \S+ \d+ ERROR ", lines[0])
    root.wait_for("{standby: 1}", root.said.count("{standby: 1}") + 3)


def test_a_log_file_that_cannot_be_written_leaves_the_old_one(root: Root) -> None:
    root.write({**QUICK, "keepalive_stats": "0.1"})
    ini = root.lab.inis[ROOT]
    ini.write_text(ini.read_text().replace(f"{root.lab.base}/log/", "/nowhere/"))
    root.reload()
    root.wait_for('cannot write log file "/nowhere/src.log": No such file or directory; going on')


def test_what_needs_a_new_start_says_so_and_unknown_keys_are_named(root: Root) -> None:
    root.write({**QUICK, "loop_dellay": "1"})
    ini = root.lab.inis[ROOT]
    ini.write_text(ini.read_text() + "[spark]\nspark.master = local[1]\n")
    root.reload()
    root.wait_for("Config reloaded")
    said = root.said
    assert "WARNING [spark] has changed: it takes effect when the worker is started again" in said
    assert 'unknown key "loop_dellay" is ignored, did you mean "loop_delay"?' in said


@pytest.mark.parametrize("background", [True, False])
def test_a_second_worker_with_the_same_ini_is_refused(root: Root, background: bool) -> None:
    pid = (root.lab.base / "pid" / f"{ROOT}.pid").read_text()
    switches = ["-d"] if background else []
    second = root.lab.run("londiste3", *switches, str(root.lab.inis[ROOT]), "worker", check=False)
    assert second.returncode == 1
    lines = second.stderr.splitlines()
    assert [x for x in lines if "Pidfile exists, another process running?" in x] == lines[-1:]
    assert "Traceback" not in second.stderr
    assert (root.lab.base / "pid" / f"{ROOT}.pid").read_text() == pid
    os.kill(int(pid), 0)
