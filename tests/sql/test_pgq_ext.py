"""pgq_ext: what a consumer has done, kept where it writes."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


@pytest.fixture
def ext(db: vdb.Database) -> vdb.Database:
    db.autocommit = True
    return db


def test_ticks(ext: vdb.Database) -> None:
    assert ext.value("select pgq_ext.get_last_tick('c')") is None
    assert ext.value("select pgq_ext.set_last_tick('c', 1)") == 1
    assert ext.value("select pgq_ext.set_last_tick('c', 'part', 7)") == 1
    assert ext.value("select pgq_ext.set_last_tick('c', 2)") == 1
    assert ext.value("select pgq_ext.get_last_tick('c')") == 2
    assert ext.value("select pgq_ext.get_last_tick('c', 'part')") == 7
    assert ext.value("select pgq_ext.set_last_tick('c', null)") == 1
    assert ext.value("select pgq_ext.get_last_tick('c')") is None
    assert ext.value("select pgq_ext.get_last_tick('c', 'part')") == 7


def test_batches(ext: vdb.Database) -> None:
    assert ext.value("select pgq_ext.is_batch_done('c', 1)") is False
    assert ext.value("select pgq_ext.set_batch_done('c', 1)") is True
    assert ext.value("select pgq_ext.set_batch_done('c', 1)") is False
    assert ext.value("select pgq_ext.is_batch_done('c', 1)") is True
    assert ext.value("select pgq_ext.is_batch_done('c', 'part', 1)") is False
    assert ext.value("select pgq_ext.set_batch_done('c', 2)") is True
    assert ext.value("select pgq_ext.is_batch_done('c', 1)") is False


def test_events_of_the_previous_batch_are_forgotten(ext: vdb.Database) -> None:
    assert ext.value("select pgq_ext.is_event_done('c', 3, 101)") is False
    assert ext.value("select pgq_ext.set_event_done('c', 3, 101)") is True
    assert ext.value("select pgq_ext.set_event_done('c', 3, 101)") is False
    assert ext.value("select pgq_ext.is_event_done('c', 3, 101)") is True
    ext.value("select pgq_ext.set_event_done('c', 'part', 3, 101)")
    assert ext.value("select pgq_ext.set_event_done('c', 4, 102)") is True
    rows = ext.query("select * from pgq_ext.completed_event order by 2, 3")
    assert [tuple(r) for r in rows] == [("c", "", 4, 102), ("c", "part", 3, 101)]


def test_arguments_by_name(ext: vdb.Database) -> None:
    text = (
        "select pgq_ext.set_event_done(a_consumer => 'c', a_subconsumer => 's', a_batch_id => 1,"
        " a_event_id => 2)"
    )
    assert ext.value(text) is True


@pytest.mark.parametrize(
    "call",
    [
        "pgq_ext.set_last_tick(null, 1)",
        "pgq_ext.set_batch_done('c', null)",
        "pgq_ext.set_event_done('c', null, 1)",
        "pgq_ext.set_event_done('c', 1, null)",
    ],
)
def test_nulls_are_refused(ext: vdb.Database, call: str) -> None:
    with pytest.raises(DatabaseError, match="null value in column"):
        ext.value(f"select {call}")
