"""A server that has stopped answering is noticed; one that is slow is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.proxy import Proxy
from tests.fixtures.wait import until
from vedur import db as vdb
from vedur.db import silence
from vedur.db.conninfo import parse, with_params
from vedur.errors import ConnectError
from vedur.node.move_lock import try_lock_move, unlock_move

MakeProxy = Callable[[int], Proxy]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Knocks come soon; returns what they found."""
    found: list[bool] = []
    ask = silence.lets_in
    monkeypatch.setattr(silence, "QUIET", 0.3)
    monkeypatch.setattr(silence, "LOGIN", 30)

    def count(conninfo: str) -> bool:
        found.append(ask(conninfo))
        return found[-1]

    monkeypatch.setattr(silence, "lets_in", count)
    yield found


@pytest.fixture
def wire(db: vdb.Database, make_proxy: MakeProxy) -> tuple[Proxy, str]:
    proxy = make_proxy(int(parse(db.connstr)["port"]))
    return proxy, with_params(db.connstr, host=proxy.host, port=str(proxy.port))


def test_a_long_statement_is_waited_for(db: vdb.Database, impatient: list[bool]) -> None:
    with vdb.connect(db.connstr, autocommit=True) as mine:
        assert mine.value("select 7 from pg_sleep(1.5)") == 7
        assert impatient
        assert all(impatient)
        with mine.copy_out("copy (select 1 from pg_sleep(1)) to stdout") as blocks:
            assert b"".join(bytes(block) for block in blocks) == b"1\n"
        with mine.transaction():
            mine.execute("create temp table t (i int) on commit drop")
            mine.executemany("insert into t select %s from pg_sleep(0.4)", [[1], [2]])
            assert mine.value("select count(*) from t") == 2


def test_a_server_that_refuses_the_login_is_alive(db: vdb.Database, impatient: list[bool]) -> None:
    role = f"only_one_{db.backend_pid}"
    db.execute(f"create role {role} login connection limit 1")
    db.commit()
    try:
        with vdb.connect(with_params(db.connstr, user=role), autocommit=True) as mine:
            assert mine.value("select 7 from pg_sleep(1)") == 7
    finally:
        db.execute(f"drop role {role}")
        db.commit()
    assert impatient
    assert all(impatient)


def test_a_server_that_lets_nobody_in_is_given_up(
    wire: tuple[Proxy, str], impatient: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, connstr = wire
    with vdb.connect(connstr, autocommit=True) as mine:
        assert mine.value("select 7") == 7
        monkeypatch.setattr(silence, "LOGIN", 2)
        proxy.stall()
        with pytest.raises(ConnectError, match=r"the server has not answered for .*, nor a login"):
            mine.value("select 8")
        assert impatient[-1:] == [False]
        assert mine.closed
        with pytest.raises(ConnectError, match="closed"):
            mine.value("select 9")


def test_a_commit_without_an_answer_is_given_up(
    wire: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, connstr = wire
    with vdb.connect(connstr, autocommit=True) as mine:
        with pytest.raises(ConnectError, match="nor a login"), mine.transaction():
            mine.execute("create table made (i int)")
            monkeypatch.setattr(silence, "LOGIN", 2)
            proxy.stall()
        assert mine.closed


def test_a_session_that_locks_a_node_does_not_outlive_its_machine(db: vdb.Database) -> None:
    other = vdb.connect(db.connstr, autocommit=True)
    with vdb.connect(db.connstr, autocommit=True) as mine:
        assert try_lock_move(mine, "q")
        # what another session cannot see: its server looks after it, and not after two hours
        assert mine.value("show tcp_keepalives_idle") == "30"
        assert mine.value("show tcp_user_timeout") == "60000"
        assert not try_lock_move(other, "q")
        other.execute("select pg_terminate_backend(%s, 60000)", [mine.backend_pid])
        unlock_move(mine, "q")  # the session is lost, the lock with it, and that is no error
        assert until(lambda: try_lock_move(other, "q"))
        unlock_move(other, "q")
    other.close()
