"""The command pgqd as an operator uses it: start, reload, stop, and every way to start badly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import TestServer
from tests.fixtures.wait import until
from vedur import __version__
from vedur.config import PgqdSettings, sample_ini
from vedur.daemon import is_running
from vedur.db import Database

COMMAND = [sys.executable, "-m", "vedur.cli.pgqd"]
LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ "


def pgqd(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=300)


class Ticker:
    """An ini file and the process that may run with it."""

    def __init__(self, directory: Path, port: int, database: str) -> None:
        self.path = directory / "pgqd.ini"
        self.log = directory / "pgqd.log"
        self.pidfile = directory / "pgqd.pid"
        self.keys = {
            "base_connstr": f"host=127.0.0.1 port={port} user=postgres password=s3cret",
            "database_list": database,
            "logfile": "%(config_dir)s/%(job_name)s.log",
            "pidfile": str(self.pidfile),
            "ticker_period": "0.05",
            "stats_period": "0.3",
        }
        self.write()

    def write(self, **keys: str) -> str:
        self.keys.update(keys)
        text = "".join(f"{key} = {value}\n" for key, value in self.keys.items() if value)
        self.path.write_text("[pgqd]\n" + text)
        self.path.chmod(0o600)
        return str(self.path)

    def run(self, *switches: str) -> subprocess.CompletedProcess[str]:
        return pgqd(*switches, str(self.path))

    @property
    def pid(self) -> int:
        return int(self.pidfile.read_text())

    def logged(self, text: str) -> bool:
        return until(lambda: self.log.exists() and text in self.log.read_text())


@pytest.fixture
def queue_db(oldest: TestServer, make_db_on) -> Database:
    db: Database = make_db_on(oldest, autocommit=True)
    db.call("pgq.create_queue", "q")
    db.call("pgq.set_queue_config", "q", "ticker_max_lag", "0")
    return db


@pytest.fixture
def ticker(tmp_path: Path, oldest: TestServer, queue_db: Database) -> Iterator[Ticker]:
    made = Ticker(tmp_path, oldest.port, str(queue_db.value("select current_database()")))
    yield made
    if made.pidfile.exists():
        os.kill(made.pid, signal.SIGKILL)


def ticks_on(db: Database) -> bool:
    last = "select max(tick_id) from pgq.tick"
    before = db.value(last)
    db.call("pgq.insert_event", "q", "t", "d")
    db.call("pgq.insert_event", "q", "t", "d")
    return until(lambda: db.value(last) > before)


def test_start_reload_stop(ticker: Ticker, queue_db: Database) -> None:
    started = ticker.run("-d")
    assert started.returncode == 0
    assert re.fullmatch(LINE + rf"LOG Starting pgqd {re.escape(__version__)}\n", started.stderr)
    pid = ticker.pid
    assert ticks_on(queue_db)
    assert ticker.logged("]: pgq version ok: 3.")
    assert until(lambda: re.search(r"LOG \{ticks: [1-9]\d*, maint: 1, ", ticker.log.read_text()))
    title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert title == f"pgqd -d {ticker.path}"

    assert ticker.run("-r").stderr == "SIGHUP sent\n"
    assert ticker.logged("LOG Got SIGHUP, re-reading config")
    assert ticks_on(queue_db)

    stopped = ticker.run("-s")
    assert (stopped.returncode, stopped.stderr) == (0, "SIGINT sent\n")
    assert until(lambda: not is_running(pid))
    assert not ticker.pidfile.exists()
    assert ticker.logged("LOG Got SIGINT, shutting down")
    assert "s3cret" not in ticker.log.read_text()
    assert "ERROR" not in ticker.log.read_text()

    again = ticker.run("-s")
    assert (again.returncode, again.stderr) == (0, "Old process is not running\n")


def test_second_start_is_refused(ticker: Ticker, queue_db: Database) -> None:
    assert ticker.run("-d").returncode == 0
    second = ticker.run("-d", "-q")
    assert second.returncode == 1
    assert second.stderr == "Pidfile exists, another process running?\n"
    assert ticks_on(queue_db)
    assert ticker.run("-k").stderr == "SIGTERM sent\n"
    assert ticker.logged("LOG Got SIGTERM, fast exit")
    assert until(lambda: not ticker.pidfile.exists())


def test_stale_pidfile_after_a_crash(ticker: Ticker, queue_db: Database) -> None:
    assert ticker.run("-d").returncode == 0
    pid = ticker.pid
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not is_running(pid))
    assert ticker.run("-r").stderr == "Old process is not running\n"
    assert ticker.run("-d").returncode == 0
    assert ticker.logged("Ignoring stale pidfile")
    assert ticks_on(queue_db)
    ticker.run("-s")
    assert until(lambda: not ticker.pidfile.exists())


def test_reload_with_a_bad_ini_keeps_running(ticker: Ticker, queue_db: Database) -> None:
    assert ticker.run("-d").returncode == 0
    ticker.write(ticker_period="often")
    os.kill(ticker.pid, signal.SIGHUP)
    assert ticker.logged('bad value "often" for "ticker_period"')
    assert ticks_on(queue_db)
    ticker.write(ticker_period="0.05", stats_period="1000")
    assert ticker.run("-r").returncode == 0
    ticker.run("-s")
    assert until(lambda: not ticker.pidfile.exists())


def test_foreground_stops_at_an_interrupt(ticker: Ticker, queue_db: Database) -> None:
    process = subprocess.Popen([*COMMAND, str(ticker.path)], stderr=subprocess.PIPE, text=True)
    try:
        assert ticker.logged("pgq version ok")
        assert ticks_on(queue_db)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "LOG Starting pgqd" in err
    assert "LOG Got SIGINT, shutting down" in err


def test_it_survives_an_outage(
    ticker: Ticker, queue_db: Database, oldest: TestServer, make_proxy
) -> None:
    proxy = make_proxy(oldest.port)
    ticker.write(base_connstr=f"host=127.0.0.1 port={proxy.port} user=postgres password=s3cret")
    assert ticker.run("-d").returncode == 0
    assert ticks_on(queue_db)
    proxy.cut()
    assert ticker.logged("ERROR [")
    proxy.restore()
    assert ticks_on(queue_db)
    ticker.run("-s")
    assert until(lambda: not ticker.pidfile.exists())
    assert "Traceback" not in ticker.log.read_text()


def test_it_stops_while_the_server_does_not_answer(
    ticker: Ticker, queue_db: Database, oldest: TestServer, make_proxy
) -> None:
    proxy = make_proxy(oldest.port)
    ticker.write(base_connstr=f"host=127.0.0.1 port={proxy.port} user=postgres")
    assert ticker.run("-d").returncode == 0
    assert ticks_on(queue_db)
    pid = ticker.pid
    proxy.stall()
    assert ticker.logged("LOG {ticks: 0, "), "a ticker run hangs"
    assert ticker.run("-s").stderr == "SIGINT sent\n"
    assert until(lambda: not is_running(pid))
    assert not ticker.pidfile.exists()


def test_reload_changes_the_databases(
    ticker: Ticker, queue_db: Database, oldest: TestServer, make_db_on
) -> None:
    other: Database = make_db_on(oldest, autocommit=True)
    other.call("pgq.create_queue", "q")
    other.call("pgq.set_queue_config", "q", "ticker_max_lag", "0")
    assert ticker.run("-d").returncode == 0
    old = ticker.keys["database_list"]
    new = str(other.value("select current_database()"))
    ticker.write(database_list=new)
    assert ticker.run("-r").returncode == 0
    assert ticker.logged(f"LOG Unregister database: [{old}]")
    assert ticker.logged(f"LOG [{new}]: pgq version ok: ")
    assert ticks_on(other)
    ticker.run("-s")
    assert until(lambda: not ticker.pidfile.exists())


@pytest.mark.draw(5)
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        ({"base_connstr": "host=127.0.0.1 port=1 password=s3cret"}, 5, "port 1 failed"),
        ({"database_list": "nowhere"}, 5, 'database "nowhere" does not exist'),
        ({"database_list": "", "initial_database": "gone"}, 5, 'database "gone" does not exist'),
        ({"base_connstr": "host 127.0.0.1"}, 2, "connect string cannot be parsed"),
        ({"ticker_period": "0"}, 2, 'bad value "0" for "ticker_period"'),
        ({"logfile": "/no/such/dir/x.log"}, 2, 'cannot open log file "/no/such/dir/x.log"'),
        ({"pidfile": "/no/such/dir/x.pid"}, 3, 'cannot write pidfile "/no/such/dir/x.pid"'),
    ],
)
def test_a_start_that_fails_says_why_in_one_line(
    ticker: Ticker, background: bool, keys: dict[str, str], code: int, message: str
) -> None:
    ticker.write(**keys)
    done = ticker.run("-q", *(["-d"] if background else []))
    assert done.returncode == code
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "s3cret" not in done.stderr
    assert not ticker.pidfile.exists()


def test_daemon_needs_a_pidfile(ticker: Ticker) -> None:
    ticker.write(pidfile="")
    done = ticker.run("-d", "-q")
    assert (done.returncode, done.stderr) == (1, "pgqd: Daemon needs pidfile\n")
    done = ticker.run("-s")
    assert (done.returncode, done.stderr) == (1, "No pidfile configured\n")


def test_without_config() -> None:
    done = pgqd()
    assert (done.returncode, done.stderr) == (1, "pgqd requires config file\n")


def test_missing_config_and_bad_switch(tmp_path: Path) -> None:
    done = pgqd(str(tmp_path / "none.ini"))
    assert done.returncode == 2
    assert re.fullmatch(r'pgqd: cannot read config file ".*": No such file.*\n', done.stderr)
    done = pgqd("-Z", "x.ini")
    assert done.returncode == 1
    assert "use --help" in done.stderr


def test_texts() -> None:
    assert pgqd("-V").stdout == f"pgqd version {__version__}\n"
    assert pgqd("--ini").stdout == sample_ini(PgqdSettings, "pgqd")
    for switch in ("-h", "--help"):
        got = pgqd(switch)
        assert (got.returncode, got.stderr) == (0, "")
        assert got.stdout.startswith("usage: pgqd [switches] config.file\n")


@pytest.mark.parametrize("switch", ["--help", "--ini", "-V"])
def test_texts_need_no_driver(switch: str) -> None:
    code = (
        "import sys\nfrom vedur.cli.pgqd import main\n"
        f"main(['{switch}'])\n"
        "sys.exit(bool({'psycopg', 'pyspark'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_manual_names_every_key_and_switch() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "pgqd.md").read_text()
    from vedur.config import reference_table

    assert reference_table(PgqdSettings) in text
    for switch in ("-v", "-q", "-d", "-h", "-V", "--ini", "-s", "-k", "-r"):
        assert f"`{switch}`" in text


def test_an_unexpected_error_at_the_start_reaches_the_starter(ticker: Ticker) -> None:
    code = (
        "import sys\n"
        "from vedur.cli import pgqd\n"
        "from vedur.ticker.service import TickerService\n"
        "def start(self): raise RuntimeError('no threads left')\n"
        "TickerService.start = start\n"
        "sys.exit(pgqd.main(sys.argv[1:]))\n"
    )
    started = subprocess.run(
        [sys.executable, "-c", code, "-d", str(ticker.path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert started.returncode == 12
    assert started.stderr.endswith("BUG: unexpected error: RuntimeError('no threads left')\n")
    assert ticker.logged("BUG: unexpected error: RuntimeError('no threads left')")
    assert not ticker.pidfile.exists()
