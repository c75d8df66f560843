"""A worker's session, lent: the same answers as in one's own, for nobody but its user, given up
when the one who asked has gone."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.integration.test_compare_engine import MakeDbOn, fill, moments
from vedur import db as vdb
from vedur.errors import DatabaseError
from vedur.pipeline.compare import (
    Borrowed,
    Lender,
    NobodyLends,
    SparkComparer,
    make_pair,
    socket_path,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return socket_path(str(tmp_path / "leaf.pid"))


@pytest.fixture
def lender(spark: Any, path: str) -> Iterator[Lender]:
    lender = Lender(spark, path, 4)
    yield lender
    lender.stop()


@pytest.fixture
def two(make_db_on: MakeDbOn, oldest: Any, newest: Any) -> tuple[vdb.Database, vdb.Database]:
    both = make_db_on(oldest, "bare"), make_db_on(newest, "bare")
    fill(both, 30_000)
    both[1].execute("delete from account where id = 7; update account set note = 'x' where id = 8")
    both[1].commit()
    return both


@pytest.mark.usefixtures("lender")
def test_the_same_answers(spark: Any, path: str, two: tuple[vdb.Database, vdb.Database]) -> None:
    own, lent = SparkComparer(spark, 4), Borrowed(path)
    statement = "select count(*) as n, max(amount) as most from account"
    with moments(make_pair(*two, "account", "account"), *two) as at:
        sums = lent.checksum(at)
        assert sums == own.checksum(at)
        assert sums[0] != sums[1]
        counts = lent.checksum(at, count_only=True)
        assert [s.rows for s in counts] == [30_000, 29_999]
        buckets = lent.buckets(at)
        assert buckets == own.buckets(at)
        assert buckets.mask > 0
        found = lent.rows(at, buckets, 10)
        assert found == own.rows(at, buckets, 10)
        assert {row.key["id"]: row.columns for row in found.rows} == {"7": (), "8": ("note",)}
        answers = lent.custom(at, statement, statement)
        assert answers == own.custom(at, statement, statement)
        assert answers[0]["n"] == 30_000
    lent.close()


@pytest.mark.usefixtures("lender")
def test_an_error_is_what_it_was(path: str, two: tuple[vdb.Database, vdb.Database]) -> None:
    lent = Borrowed(path)
    with moments(make_pair(*two, "account", "account"), *two) as at:
        with pytest.raises(DatabaseError, match="division by zero") as caught:
            lent.custom(at, "select 1/0", "select 1")
        assert caught.value.sqlstate == "22012"
        assert lent.checksum(at, count_only=True)[0].rows == 30_000  # and it goes on
    lent.close()


@pytest.mark.usefixtures("lender")
def test_jobs_end_with_the_one_who_asked(
    spark: Any, path: str, two: tuple[vdb.Database, vdb.Database]
) -> None:
    from vedur.pipeline.compare.lend import _say
    from vedur.pipeline.compare.wire import pair_to_json

    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getActiveJobsIds())
    with moments(make_pair(*two, "account", "account"), *two) as at:
        lent = Borrowed(path)
        forever = "select pg_sleep(600)"
        asked = {"do": "custom", "pair": pair_to_json(at), "source": forever, "target": forever}
        _say(lent._lines, asked)
        assert "parts" in lent._hear()
        assert set(tracker.getActiveJobsIds()) - before
        lent.close()
        assert until(lambda: not set(tracker.getActiveJobsIds()) - before)
    for db in two:
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query like %s",
            ["%pg_sleep(600)%"],
        )


def test_a_worker_that_stops_says_so(
    lender: Lender, path: str, two: tuple[vdb.Database, vdb.Database]
) -> None:
    lent = Borrowed(path)
    lender.stop()
    assert not Path(path).exists()
    with (
        moments(make_pair(*two, "account", "account"), *two) as at,
        pytest.raises(NobodyLends, match=r"ended|Broken pipe|reset"),
    ):
        lent.checksum(at)
    with pytest.raises(NobodyLends, match="No such file"):
        Borrowed(path)


def test_a_dead_worker_is_no_obstacle(spark: Any, path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    with pytest.raises(NobodyLends, match="refused"):
        Borrowed(path)
    lender = Lender(spark, path, 4)
    Borrowed(path).close()
    lender.stop()


@pytest.mark.usefixtures("lender")
def test_nobody_else_can_open_it(path: str) -> None:
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_another_version_is_not_asked(path: str) -> None:
    older = socket.socket(socket.AF_UNIX)
    older.bind(path)
    older.listen()

    def greet() -> None:
        client, _ = older.accept()
        client.sendall(b'{"version": "0.0.1"}\n')
        client.close()

    thread = threading.Thread(target=greet)
    thread.start()
    with pytest.raises(NobodyLends, match=r"0\.0\.1"):
        Borrowed(path)
    thread.join()
    older.close()


@pytest.mark.usefixtures("lender")
def test_noise_does_no_harm(path: str) -> None:
    for noise in (b"hello\n", b'{"do": "anything", "pair": {}}\n', b"\n", b"[1]\n"):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall(noise)
        client.close()
    Borrowed(path).close()


def test_a_path_too_long_for_a_socket_lends_nothing() -> None:
    assert socket_path("/" + "x" * 120 + ".pid") == ""
    assert socket_path("") == ""
    assert socket_path("/run/leaf.pid") == "/run/leaf.sock"
