"""COPY data from server to server, by the socket and through libpq; same bytes, same errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vedur import db as vdb
from vedur.db import copy as copy_module
from vedur.db.copy import copy_all, pump
from vedur.db.libpq import is_plain
from vedur.errors import ConnectError, DatabaseError, PrivilegeError

IN = "copy t from stdin (format {})"


@pytest.fixture(params=["splice", "libpq"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(copy_module, "is_plain", lambda db: request.param == "splice")
    return str(request.param)


@pytest.fixture
def sides(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database]
) -> Iterator[tuple[vdb.Database, vdb.Database]]:
    source, target = make_db_on(oldest, "bare"), make_db_on(newest, "bare")
    for db in (source, target):
        db.execute("create table t (id int primary key, b bytea)")
        db.commit()
    yield source, target
    # A session left in a COPY would keep a server that has both from dropping the other database.
    source.close()
    target.close()


def test_plain_connections_are_recognised(sides: tuple[vdb.Database, vdb.Database]) -> None:
    assert all(is_plain(db) for db in sides)


@pytest.mark.parametrize("form", ["binary", "text"])
def test_rows_arrive_whatever_they_hold(
    sides: tuple[vdb.Database, vdb.Database], way: str, form: str
) -> None:
    source, target = sides
    # bytes that look like the end of the stream, like an error, like anything
    hostile = [
        b"c\x00\x00\x00\x04C\x00\x00\x00\x0cCOPY 99\x00T\x00\x00\x00\x1b\x00\x01end_00\x00",
        b"Z\x00\x00\x00\x05E",
        b"E\x00\x00\x00\x10SERROR\x00",
        b"\\.\n\\N\t\x00" * 1000,
        bytes(range(256)) * 400,
    ]
    source.executemany("insert into t values (%s, %s)", [(n, hostile[n % 5]) for n in range(1000)])
    source.commit()
    out = f"copy (select * from t order by id) to stdout (format {form})"
    done = pump(source, out, target, IN.format(form))
    assert done.rows == 1000
    assert done.bytes > 1_000_000
    assert source.closed
    target.commit()
    with vdb.connect(source.connstr) as again:
        text = "select md5(string_agg(id || ' ' || b::text, ',' order by id)) from t"
        assert target.value(text) == again.value(text)


def test_an_empty_table(sides: tuple[vdb.Database, vdb.Database], way: str) -> None:
    source, target = sides
    done = pump(source, "copy t to stdout (format binary)", target, IN.format("binary"))
    assert done.rows == 0
    target.execute("insert into t values (1)")
    target.commit()
    assert target.value("select count(*) from t") == 1


@pytest.mark.parametrize("at", [1, 5000, 200000])
def test_an_error_of_the_source_leaves_nothing(
    sides: tuple[vdb.Database, vdb.Database], way: str, at: int
) -> None:
    source, target = sides
    rows = f"select g, (g / (g - {at}))::text::bytea from generate_series(1, 300000) g"
    out = f"copy ({rows}) to stdout"
    with pytest.raises(DatabaseError, match="division by zero"):
        pump(source, out, target, IN.format("text"))
    with vdb.connect(target.connstr) as fresh:
        assert fresh.value("select count(*) from t") == 0


def test_an_error_of_the_target_is_told(sides: tuple[vdb.Database, vdb.Database], way: str) -> None:
    source, target = sides
    target.execute("insert into t values (500)")
    target.commit()
    out = "copy (select g, null::bytea from generate_series(1, 100000) g) to stdout"
    with pytest.raises(DatabaseError, match="duplicate key") as caught:
        pump(source, out, target, IN.format("text"))
    assert caught.value.sqlstate == "23505"
    target.rollback()
    assert target.value("select count(*) from t") == 1


def test_a_bad_statement_is_told(sides: tuple[vdb.Database, vdb.Database], way: str) -> None:
    source, target = sides
    with pytest.raises(DatabaseError, match="nowhere"):
        pump(source, "copy nowhere to stdout", target, IN.format("text"))
    target.rollback()
    with (
        vdb.connect(source.connstr) as again,
        pytest.raises(DatabaseError, match='relation "gone" does not exist'),
    ):
        pump(again, "copy t to stdout", target, "copy gone from stdin")
    target.rollback()
    assert target.value("select 1") == 1


def test_a_source_that_vanishes(
    sides: tuple[vdb.Database, vdb.Database],
    way: str,
    make_proxy: Callable[[int], Any],
    oldest: Any,
) -> None:
    source, target = sides
    proxy = make_proxy(oldest.port)
    through = source.connstr.replace(f"port={oldest.port}", f"port={proxy.port}")
    proxy.delay = 0.001
    out = "copy (select g, null::bytea from generate_series(1, 3000000) g, pg_sleep(0)) to stdout"
    with vdb.connect(through) as weak:
        threading.Timer(0.5, proxy.cut).start()
        with pytest.raises((ConnectError, DatabaseError)):
            pump(weak, out, target, IN.format("text"))
    with vdb.connect(target.connstr) as fresh:
        assert fresh.value("select count(*) from t") == 0


def test_many_small_copies_go_in_one_query(db: vdb.Database) -> None:
    for name in ("a", "b", "c"):
        db.execute(f"create table {name} (id int primary key, t text)")
    copies = [("copy a from stdin", [b"1\tone\n", b"2\ttwo\n"]), ("copy b from stdin", [])]
    copies.append(("copy c from stdin (format csv)", [b'7,"a;\nb"\n']))
    copy_all(db, copies)
    assert db.query("select * from a order by id") == [(1, "one"), (2, "two")]
    assert db.value("select count(*) from b") == 0
    assert db.query("select * from c") == [(7, "a;\nb")]


def test_of_many_copies_the_one_that_fails_is_named(db: vdb.Database) -> None:
    db.autocommit = True
    for name in ("a", "b", "c"):
        db.execute(f"create table {name} (id int primary key)")
    rows = {"a": b"1\n", "b": b"x\n", "c": b"3\n"}
    copies = [(f"copy {name} from stdin", [row]) for name, row in rows.items()]
    with pytest.raises(DatabaseError, match="invalid input syntax") as caught:
        copy_all(db, copies)
    assert caught.value.sqlstate == "22P02"
    assert caught.value.values["query"] == "copy b from stdin"
    # one query is one transaction, and the connection is as good as new
    assert db.value("select count(*) from a") == 0


def test_a_sender_that_fails_leaves_nothing_behind(db: vdb.Database) -> None:
    db.autocommit = True
    db.execute("create table a (id int primary key)")

    def blocks() -> Iterator[bytes]:
        yield b"1\n"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        copy_all(db, [("copy a from stdin", blocks())])
    assert db.value("select count(*) from a") == 0


def test_statements_in_one_round_trip_answer_each(db: vdb.Database) -> None:
    db.execute("create table a (id int)")
    texts = ["insert into a values (1), (2)", "select id from a order by id", "delete from a"]
    inserted, rows, deleted = db.each(texts)
    assert (inserted, deleted) == (2, 2)
    assert [row.id for row in rows] == [1, 2]
    assert db.each([]) == []


def test_copies_fail_with_the_same_errors_as_other_statements(db: vdb.Database) -> None:
    db.autocommit = True
    db.execute("create table a (id int check (id > 0))")
    with pytest.raises(DatabaseError) as refused:
        copy_all(db, [("copy a from stdin", [b"-1\n"])])
    assert refused.value.values["detail"] == "Failing row contains (-1)."
    db.execute("create role nobody_here; set role nobody_here")
    try:
        with pytest.raises(PrivilegeError):
            copy_all(db, [("copy a from stdin", [b"1\n"])])
    finally:
        db.execute("reset role; drop role nobody_here")


def test_a_server_that_ends_the_session_is_quoted(db: vdb.Database) -> None:
    db.autocommit = True
    db.execute("create table a (id int)")

    def blocks() -> Iterator[bytes]:
        with vdb.connect(db.connstr, autocommit=True) as other:
            other.query("select pg_terminate_backend(%s, 5000)", [db.backend_pid])
        yield b"1\n"

    with pytest.raises(ConnectError):
        copy_all(db, [("copy a from stdin", blocks()), ("copy a from stdin", [b"2\n"])])
