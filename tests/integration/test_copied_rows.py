"""Rows of a binary COPY that are looked at on the way, past libpq and through it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from vedur import db as vdb
from vedur.db import copied_rows
from vedur.db.copied_rows import CopiedRows, OpenCopy, read_rows
from vedur.db.copy import copy_rows
from vedur.errors import ConnectError, DatabaseError, InternalError

MARK = b"\0\2\0\0\0\4"
OUT = "copy (select * from t order by id) to stdout (format binary)"
IN = "copy t from stdin (format binary)"


@pytest.fixture(params=["socket", "libpq"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(copied_rows, "is_plain", lambda db: request.param == "socket")
    return str(request.param)


@pytest.fixture
def source(make_db: Callable[..., vdb.Database]) -> vdb.Database:
    db = make_db(autocommit=True)
    db.execute("create table t (id int, b bytea)")
    return db


@pytest.fixture
def target(make_db: Callable[..., vdb.Database]) -> Iterator[vdb.Database]:
    db = make_db(autocommit=True)
    db.execute("create table t (id int primary key, b bytea)")
    yield db
    db.close()


def fill(db: vdb.Database) -> None:
    """Rows that hold what looks like messages, like their end and like errors, and large ones."""
    hostile = [
        b"c\0\0\0\4C\0\0\0\x0cCOPY 99\0Z\0\0\0\5I",
        b"d\0\0\0\x0a\0\2\0\0\0\4\0\0\0\1d\0\0\0\6\xff\xff",
        b"E\0\0\0\x10SERROR\0",
        bytes(range(256)) * 30,
        None,
    ]
    db.executemany("insert into t values (%s, %s)", [(n, hostile[n % 5]) for n in range(500)])
    db.execute("insert into t values (900, decode(repeat('64', 700000), 'hex'))")


def rows_of(blocks: Iterator[CopiedRows]) -> list[bytes]:
    found = []
    for rows in blocks:
        parts = zip(rows.begins.tolist(), rows.sizes.tolist(), strict=True)
        found += [rows.data[begin : begin + size] for begin, size in parts]
        assert rows.joined() == b"".join(found[-len(rows.sizes) :])
    return found


def content(db: vdb.Database) -> object:
    return db.query("select id, md5(b) from t order by id")


@pytest.mark.parametrize(("size", "room"), [(1 << 20, 1 << 18), (1000, 100), (10, 7)])
def test_rows_are_read_and_passed_on(
    source: vdb.Database, target: vdb.Database, way: str, size: int, room: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill(source)
    plain = [bytes(row) for row in copy_rows(source, OUT)]
    plain[0] = plain[0].removeprefix(copied_rows.HEADER)
    monkeypatch.setattr(copied_rows, "_ROOM", room)
    assert rows_of(read_rows(source, OUT, size, MARK)) == plain[:-1]
    with target.transaction():
        copy = OpenCopy(target, IN)
        for rows in read_rows(source, OUT, size, MARK):
            copy.write(rows)
        assert copy.end() == 501
    assert content(target) == content(source)


def test_no_rows(source: vdb.Database, target: vdb.Database, way: str) -> None:
    assert rows_of(read_rows(source, OUT, 1000, MARK)) == []
    assert OpenCopy(target, IN).end() == 0
    assert (source.value("select 1"), target.value("select 1")) == (1, 1)


@pytest.mark.usefixtures("way")
def test_what_is_read_past_libpq_is_written_through_it(
    source: vdb.Database, target: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other way round: the sides are encrypted or not, each by itself."""
    fill(source)
    for plain in (source, target):
        target.execute("truncate t")
        monkeypatch.setattr(copied_rows, "is_plain", lambda db, plain=plain: db is plain)
        copy = OpenCopy(target, IN)
        for rows in read_rows(source, OUT, 5000, MARK):
            copy.write(rows)
        assert copy.end() == 501
        assert content(target) == content(source)


@pytest.mark.parametrize("at", [0, 1, 5000, 100000])
def test_an_error_of_the_source_is_told(source: vdb.Database, way: str, at: int) -> None:
    rows = f"select g, 1 / (g - {at}) from generate_series(0, 100000) g"
    out = f"copy ({rows}) to stdout (format binary)"
    with pytest.raises(DatabaseError, match="division by zero"):
        rows_of(read_rows(source, out, 1000, MARK))
    with pytest.raises(DatabaseError, match='"nowhere" does not exist'):
        rows_of(read_rows(source, "copy nowhere to stdout (format binary)", 1000, MARK))
    with pytest.raises(InternalError, match="binary form"):
        rows_of(read_rows(source, "copy (select 1) to stdout", 1000, MARK))
    source.close()


def test_notices_are_no_rows(source: vdb.Database, way: str) -> None:
    source.execute(
        "create function said(i int) returns int language plpgsql as"
        " $$ begin if i % 700 = 0 then raise notice '%', i; end if; return i; end $$"
    )
    out = (
        "copy (select said(g), 'x'::text from generate_series(0, 5000) g) to stdout (format binary)"
    )
    found = rows_of(read_rows(source, out, 1000, MARK))
    assert [struct.unpack(">i", row[6:10])[0] for row in found] == list(range(5001))


def test_a_row_that_is_missing_is_noticed(
    source: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source)
    split = copied_rows._find_messages

    def lose(*args: Any) -> tuple[Any, int]:
        found, end = split(*args)
        return np.delete(found, [3]) if len(found) > 9 else found, end

    monkeypatch.setattr(copied_rows, "_find_messages", lose)
    with pytest.raises(InternalError, match="the server sent 501 rows, and"):
        rows_of(read_rows(source, OUT, 1 << 20, MARK))


def test_an_error_of_the_target_is_told_at_the_end(
    source: vdb.Database, target: vdb.Database, way: str
) -> None:
    fill(source)
    target.execute("insert into t values (7)")
    with pytest.raises(DatabaseError, match="duplicate key") as caught, target.transaction():
        copy = OpenCopy(target, IN)
        for rows in read_rows(source, OUT, 1000, MARK):
            copy.write(rows)
        copy.end()
    assert caught.value.sqlstate == "23505"
    assert target.value("select count(*) from t") == 1


def test_a_copy_that_is_given_up_leaves_nothing(
    source: vdb.Database, target: vdb.Database, way: str
) -> None:
    fill(source)
    with pytest.raises(ZeroDivisionError), target.transaction():
        copy = OpenCopy(target, IN)
        copy.write(next(iter(read_rows(source, OUT, 1000, MARK))))
        copy.abort()
        raise ZeroDivisionError
    assert target.value("select count(*) from t") == 0
    source.close()


def test_a_source_that_vanishes(
    source: vdb.Database, way: str, make_proxy: Callable[[int], Any]
) -> None:
    port = source.raw.info.port
    proxy = make_proxy(port)
    through = source.connstr.replace(f"port={port}", f"port={proxy.port}")
    proxy.delay = 0.001
    rows = "select g, null::bytea from generate_series(1, 3000000) g, pg_sleep(0)"
    with vdb.connect(through, autocommit=True) as weak:
        threading.Timer(0.5, proxy.cut).start()
        with pytest.raises((ConnectError, DatabaseError)):
            rows_of(read_rows(weak, f"copy ({rows}) to stdout (format binary)", 1000, MARK))


def test_a_target_that_vanishes(source: vdb.Database, target: vdb.Database, way: str) -> None:
    fill(source)
    rows = next(iter(read_rows(source, OUT, 1000, MARK)))
    pid = target.value("select pg_backend_pid()")
    copy = OpenCopy(target, IN)
    copy.write(rows)
    with vdb.connect(target.connstr, autocommit=True) as other:
        other.value("select pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises((ConnectError, DatabaseError)):
        for _ in range(1000):
            copy.write(rows)
        copy.end()
    copy.abort()
    source.close()


class Interrupted:
    """A socket whose user is interrupted in the middle of a message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def sendall(self, data: bytes) -> None:
        self.sock.sendall(data[: len(data) // 2])
        raise KeyboardInterrupt


@pytest.mark.timeout(60)
def test_a_message_that_is_cut_short_is_waited_for_by_nobody(
    source: vdb.Database, target: vdb.Database
) -> None:
    fill(source)
    rows = next(iter(read_rows(source, OUT, 100_000, MARK)))
    copy = OpenCopy(target, IN)
    assert copy._socket is not None
    sock, copy._socket = copy._socket, Interrupted(copy._socket)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        copy.write(rows)
    copy.abort()
    assert target.closed
    assert sock.fileno() == -1
    source.close()


def test_a_connection_that_is_lost_at_the_end_leaves_no_socket(target: vdb.Database) -> None:
    copy = OpenCopy(target, IN)
    sock = copy._socket
    assert sock is not None
    sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectError):
        copy.end()
    assert sock.fileno() == -1
