"""A worker's session, shared: the same answers as in one's own, for nobody but its user, given up
when the one who asked has gone."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.integration.test_compare_engine import MakeDbOn, fill, moments
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.errors import DatabaseError, SessionNotShared, StateError
from vedur.pipeline.compare import (
    Buckets,
    SessionServer,
    SharedComparer,
    SparkComparer,
    Sums,
    make_pair,
    open_comparer,
    shared_session,
    socket_path,
)
from vedur.pipeline.compare.jobs import SOURCE, Work, ask_each, collect
from vedur.pipeline.compare.model import Piece
from vedur.pipeline.compare.plan import Use
from vedur.tables.mapping import TableMap

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Each task that runs has two connections, at the lock.
_STUCK = """
select count(*) > 1 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return socket_path(str(tmp_path / "leaf.pid"))


@pytest.fixture
def server(spark: Any, path: str) -> Iterator[SessionServer]:
    server = SessionServer(spark, path, lambda: 4)
    yield server
    server.stop()


@pytest.fixture
def two(make_db_on: MakeDbOn, oldest: Any, newest: Any) -> tuple[vdb.Database, vdb.Database]:
    both = make_db_on(oldest, "bare"), make_db_on(newest, "bare")
    fill(both, 30_000)
    both[1].execute("delete from account where id = 7; update account set note = 'x' where id = 8")
    both[1].commit()
    return both


@pytest.mark.draw("compare")
@pytest.mark.usefixtures("server")
def test_the_same_answers(spark: Any, path: str, two: tuple[vdb.Database, vdb.Database]) -> None:
    own, shared = SparkComparer(spark, 4), SharedComparer(path, 4)
    with moments(make_pair(*two, TableMap("account", "account")), *two) as at:
        sums = shared.checksum(at)
        assert sums == own.checksum(at)
        assert sums[0] != sums[1]
        counts = shared.checksum(at, count_only=True)
        assert [s.rows for s in counts] == [30_000, 29_999]
        buckets = shared.buckets(at)
        assert buckets == own.buckets(at)
        assert buckets.mask > 0
        found = shared.rows(at, buckets, 10)
        assert found == own.rows(at, buckets, 10)
        assert {row.key["id"]: row.columns for row in found.rows} == {"7": (), "8": ("note",)}
    shared.close()


@pytest.mark.draw("compare")
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("pages", [20, 100])
def test_the_same_answers_in_many_tasks(
    spark: Any,
    path: str,
    two: tuple[vdb.Database, vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
    pages: int,
) -> None:
    whole = SparkComparer(spark, 4)
    shared = SharedComparer(path, 4)
    with moments(make_pair(*two, TableMap("account", "account")), *two) as at:
        sums, buckets = whole.checksum(at), whole.buckets(at)
        monkeypatch.setattr("vedur.pipeline.compare.plan.SLICE_PAGES", pages)
        assert shared.checksum(at) == sums
        assert shared.buckets(at) == buckets
        by_turns = SparkComparer(spark, 4, Use.BY_TURNS)
        assert by_turns.checksum(at) == sums
    shared.close()


@pytest.mark.draw("compare")
@pytest.mark.usefixtures("server")
def test_one_slot_is_left_to_others(
    spark: Any,
    path: str,
    two: tuple[vdb.Database, vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vedur.pipeline.compare.plan.SLICE_PAGES", 10)
    shared = SharedComparer(path, 4)
    with moments(make_pair(*two, TableMap("account", "account")), *two) as at:
        locked = vdb.connect(two[0].connstr, autocommit=True)
        locked.execute("select pg_advisory_lock(77)")
        stuck = "pg_advisory_lock_shared(77) is not null"
        slow = replace(at, source=replace(at.source, where=stuck))
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(shared.checksum, slow)
            try:
                assert until(lambda: locked.value(_STUCK))
                assert spark.range(7).count() == 7  # there is room for another's job
                assert not asked.done()
            finally:
                locked.close()
            assert asked.result()[0].rows == 30_000
    shared.close()


@pytest.mark.usefixtures("server")
def test_an_error_is_what_it_was(path: str, two: tuple[vdb.Database, vdb.Database]) -> None:
    shared = SharedComparer(path, 4)
    with moments(make_pair(*two, TableMap("account", "account")), *two) as at:
        broken = replace(at, source=replace(at.source, where="1 / (id - 7) > 0"))
        with pytest.raises(DatabaseError, match="division by zero") as caught:
            shared.checksum(broken)
        assert caught.value.sqlstate == "22012"
        assert shared.checksum(at, count_only=True)[0].rows == 30_000  # and it goes on
    shared.close()


@pytest.mark.parametrize("lanes", [1, 2])
def test_an_error_in_one_lane_ends_the_others(spark: Any, tmp_path: Path, lanes: int) -> None:
    def do(item: int) -> int:
        (tmp_path / str(item)).touch()
        if item == 1:
            raise StateError("no")
        return item * 2

    assert collect(spark, [2, 3, 4], do, "test", lanes) == [4, 6, 8]
    with pytest.raises(StateError, match=r"^no$"):
        collect(spark, [0, 1, *range(5, 40)], do, "test", lanes)
    begun = {int(p.name) for p in tmp_path.iterdir()}
    assert {0, 1} <= begun
    assert len(begun) < 30


def test_an_error_on_one_connection_ends_the_others(
    two: tuple[vdb.Database, vdb.Database],
) -> None:
    begun: list[str] = []

    def turn(db: vdb.Database, texts: Iterator[str]) -> list[object]:
        found = []
        for text in texts:
            begun.append(text)
            found.append(db.value(text))
        return found

    cuts = tuple(("", str(number)) for number in range(40))
    divide = "select pg_sleep(0.02)::text || 1 / (5 - \x01pages\x01)"
    plain = Work(SOURCE, "begin", "select \x01pages\x01", cuts, two[0].connstr, 2)
    assert sorted(n for turns in ask_each(plain, turn) for n in turns) == list(range(40))
    begun.clear()
    broken = replace(plain, pattern=divide)
    with pytest.raises(DatabaseError, match="division by zero"):
        ask_each(broken, turn)
    assert 5 < len(begun) < 20


@pytest.mark.usefixtures("server")
def test_jobs_end_with_the_one_who_asked(
    spark: Any, path: str, two: tuple[vdb.Database, vdb.Database]
) -> None:
    from vedur.pipeline.compare.shared_session import _say, pair_to_json

    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getActiveJobsIds())
    with moments(make_pair(*two, TableMap("account", "account")), *two) as at:
        shared = SharedComparer(path, 4)
        slow = replace(at, source=replace(at.source, where="pg_sleep(600) is not null"))
        _say(shared._lines, {"do": "checksum", "number": 1, "limit": 4, "count_only": True,
                           "pair": pair_to_json(slow)})  # fmt: skip
        assert "parts" in shared._hear()
        assert until(lambda: set(tracker.getActiveJobsIds()) - before)
        shared.close()
        assert until(lambda: not set(tracker.getActiveJobsIds()) - before)
    for db in two:
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query like %s",
            ["%pg_sleep(600) is not%"],
        )


def test_a_worker_that_stops_says_so(
    server: SessionServer, path: str, two: tuple[vdb.Database, vdb.Database]
) -> None:
    shared = SharedComparer(path, 4)
    server.stop()
    assert not Path(path).exists()
    with (
        moments(make_pair(*two, TableMap("account", "account")), *two) as at,
        pytest.raises(SessionNotShared, match=r"ended|Broken pipe|reset"),
    ):
        shared.checksum(at)
    with pytest.raises(SessionNotShared, match="No such file"):
        SharedComparer(path, 4)


@pytest.mark.draw("compare")
def test_a_comparison_goes_on_without_the_worker(
    server: SessionServer,
    spark: Any,
    tmp_path: Path,
    two: tuple[vdb.Database, vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    choice = "vedur.pipeline.compare.shared_session"
    start = lambda _settings: started.append(spark) or spark  # noqa: E731
    monkeypatch.setattr(f"{choice}.start_spark", start)
    monkeypatch.setattr(f"{choice}.end_spark", lambda _spark: None)
    settings = LondisteSettings(pidfile=str(tmp_path / "leaf.pid"))
    with (
        moments(make_pair(*two, TableMap("account", "account")), *two) as at,
        open_comparer(settings) as comparer,
    ):
        shared = comparer.checksum(at)
        assert started == []
        server.stop()
        assert comparer.checksum(at) == shared
        assert started == [spark]


def test_a_dead_worker_is_no_obstacle(spark: Any, path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    with pytest.raises(SessionNotShared, match="refused"):
        SharedComparer(path, 4)
    server = SessionServer(spark, path, lambda: 4)
    SharedComparer(path, 4).close()
    server.stop()


@pytest.mark.usefixtures("server")
def test_nobody_else_can_open_it(path: str) -> None:
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (b'{"version": "0.0.1"}\n', "another version"),
        (b"220 hello\n", "no worker of ours"),
        (b"[1]\n", "no worker of ours"),
        (b"", "ended"),
    ],
)
def test_a_stranger_is_not_asked(path: str, greeting: bytes, why: str) -> None:
    older = socket.socket(socket.AF_UNIX)
    older.bind(path)
    older.listen()

    def greet() -> None:
        client, _ = older.accept()
        client.sendall(greeting)
        client.close()

    thread = threading.Thread(target=greet)
    thread.start()
    with pytest.raises(SessionNotShared, match=why):
        SharedComparer(path, 4)
    thread.join()
    older.close()


@pytest.mark.usefixtures("server")
def test_another_environment_is_not_asked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's libpq would take the connect strings for something else."""
    ours = shared_session._surroundings()
    monkeypatch.setattr(shared_session, "_surroundings", lambda: ours)
    SharedComparer(path, 4).close()
    monkeypatch.undo()
    monkeypatch.setenv("PGPORT", "5433")
    assert shared_session._surroundings() != ours


@pytest.mark.usefixtures("server")
def test_another_user_is_not_asked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SessionNotShared, match="another user's"):
        SharedComparer(path, 4)


@pytest.mark.usefixtures("server")
def test_noise_does_no_harm(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", crashed.append)
    asked = b'{"do": "anything", "pair": {}, "limit": 1, "number": 1}\n'
    for noise in (b"hello\n", asked, b'{"do": 1}\n', b"\n", b"[1]\n", b"\xff\n"):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall(noise)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
        client.close()
    SharedComparer(path, 4).close()
    assert crashed == []


def test_two_workers_and_files_of_others(spark: Any, server: SessionServer, path: str) -> None:
    with pytest.raises(FileExistsError, match="another process"):
        SessionServer(spark, path, lambda: 4)
    SharedComparer(path, 4).close()
    Path(path).rename(f"{path}.moved")
    Path(path).write_text("somebody's")
    with pytest.raises(FileExistsError, match="no socket"):
        SessionServer(spark, path, lambda: 4)
    server.stop()
    assert Path(path).read_text() == "somebody's"


def test_what_would_keep_slots_for_long_is_not_lent(
    path: str, two: tuple[vdb.Database, vdb.Database], server: SessionServer
) -> None:
    shared = SharedComparer(path, 4)
    pair = make_pair(*two, TableMap("account", "account"))
    large = replace(pair.source, pieces=(Piece("account", 2048 * 65),))
    whole = replace(pair.source, pieces=(Piece("account", None),))
    for question in (
        lambda: shared.custom(pair, "select 1", "select 1"),
        lambda: shared.buckets(replace(pair, source=large)),
        lambda: shared.checksum(replace(pair, source=whole)),
        lambda: shared.rows(pair, Buckets(0, Sums(), Sums(), ()), 1_000_000),
    ):
        with pytest.raises(SessionNotShared, match=r"slots|slices"):
            question()
    shared.close()
    server.stop()


def test_a_path_too_long_for_a_socket_lends_nothing() -> None:
    assert socket_path("/" + "x" * 120 + ".pid") == ""
    assert socket_path("") == ""
    assert socket_path("/run/leaf.pid") == "/run/leaf.pid.sock"
