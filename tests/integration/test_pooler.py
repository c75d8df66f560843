"""Connections through PgBouncer: in session mode all is well, in other modes they are refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.fixtures.wants import wanting
from vedur import db as vdb
from vedur.db import pooler
from vedur.db.conninfo import parse
from vedur.demo.server import free_port
from vedur.errors import ConnectError

pytestmark = pytest.mark.skipif(
    not (shutil.which("pgbouncer") or Path("/usr/sbin/pgbouncer").exists()),
    reason=wanting("pgbouncer"),
)

INI = """
[databases]
{dbname} = host={host} port={port} dbname={dbname} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
query_wait_timeout = 60
ignore_startup_parameters = extra_float_digits
"""

MakePooler = Callable[..., str]


@pytest.fixture
def make_pooler(db: vdb.Database, tmp_path: Path) -> Iterator[MakePooler]:
    """make_pooler(mode, size=4): a connect string that leads to the database through a pool."""
    running: list[subprocess.Popen[bytes]] = []
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"

    def make(mode: str, size: int = 4) -> str:
        place = parse(db.connstr)
        words = {"host": "127.0.0.1", "port": "5432", "user": "postgres"} | place
        listen = free_port()
        ini = tmp_path / f"{mode}.ini"
        ini.write_text(INI.format(**words, listen=listen, mode=mode, size=size))
        # it refuses to run as root
        running.append(subprocess.Popen([program, "-q", "-u", "nobody", str(ini)]))
        dsn = f"host=127.0.0.1 port={listen} dbname={words['dbname']} user={words['user']}"

        def answers() -> bool:
            try:
                psycopg.connect(dsn).close()
            except psycopg.OperationalError:
                return False
            return True

        assert until(answers)
        return dsn

    yield make
    for process in running:
        process.terminate()
        process.wait(120)
    pooler._proven.clear()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_sessions_that_are_shared_are_refused(make_pooler: MakePooler, mode: str) -> None:
    dsn = make_pooler(mode)
    for _ in range(3):
        with pytest.raises(ConnectError, match=r"a pool in session mode \(pool_mode = session\)"):
            vdb.connect(dsn)
    with psycopg.connect(dsn, autocommit=True) as other:  # and nothing was left in its sessions
        assert other.execute("show row_security").fetchone() == ("on",)


def test_a_pool_in_session_mode_is_as_good_as_none(make_pooler: MakePooler) -> None:
    dsn = make_pooler("session")
    with vdb.connect(dsn, autocommit=True) as one, vdb.connect(dsn, autocommit=True) as two:
        one.execute("listen bell")
        two.execute("notify bell, 'now'")
        assert [n.payload for n in one.notifications(30)] == ["now"]
        assert one.value("show row_security") == "off"
        assert one.value("select pg_backend_pid()") != two.value("select pg_backend_pid()")


def test_a_pool_that_has_no_second_session(
    make_pooler: MakePooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooler, "_PATIENCE", 0.3)
    dsn = make_pooler("session", size=1)
    with vdb.connect(dsn, autocommit=True) as one:
        assert one.value("select 1") == 1


def test_a_server_without_a_pooler_is_asked_once(
    db: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("a second connection is for poolers")

    monkeypatch.setattr(pooler, "_ask_patiently", refuse)
    with vdb.connect(db.connstr) as again:
        assert again.backend_pid == again.value("select pg_backend_pid()")
