"""Nobody in a circle: the end of a first copy against whoever adds the same table meanwhile.

A first copy changes the row of its table and looks at the node's row for it (a foreign key is
checked anew for a row version of one's own transaction); a worker's batch and `add-table` come the
other way round. Lock timeouts are shorter than deadlock_timeout, so a wait is seen as what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fixtures.wait import until
from vedur import db as vdb

_STRUCT = "select ret_code from londiste.local_set_table_struct('q', 'public.t', null)"
_STATE = "select ret_code from londiste.local_set_table_state('q', 'public.t', null, 'ok')"
_REGISTER = "select ret_code from pgq_node.register_consumer('q', 'l.copy.t', 'r', 1)"
_GLOBAL = "select ret_note from londiste.global_add_table('q', 'public.t')"
_LOCAL = "select ret_note from londiste.local_add_table('q', 'public.t')"
_REMOVE = "select ret_note from londiste.global_remove_table('q', 'public.u')"
_HOLD = "select from londiste.table_info where table_name = 'public.t' for no key update"


@pytest.fixture
def sessions(db: vdb.Database) -> Iterator[tuple[vdb.Database, vdb.Database]]:
    """Two sessions on a leaf that copies table t."""

    def call(function: str, *params: Any) -> None:
        marks = ", ".join(["%s"] * len(params))
        assert db.one(f"select * from {function}({marks})", list(params)).ret_code < 300

    for name in ("r", "l"):
        call("pgq_node.register_location", "q", name, "dbname=x", False)
    call("pgq_node.create_node", "q", "leaf", "l", "lw", "r", 1, None)
    for name in ("t", "u"):
        db.execute(f"create table public.{name} (id int primary key)")
        call("londiste.global_add_table", "q", f"public.{name}")
        call("londiste.local_add_table", "q", f"public.{name}")
    db.commit()
    with vdb.connect(db.connstr) as copy, vdb.connect(db.connstr) as other:
        for one in (copy, other):
            one.execute("set lock_timeout = '800ms'")
            one.commit()
        yield copy, other


def test_a_worker_that_hears_of_the_table_waits_for_no_copy(
    sessions: tuple[vdb.Database, vdb.Database],
) -> None:
    copy, worker = sessions
    assert copy.value(_STRUCT) == 200
    assert worker.value(_GLOBAL) == "Table already added: public.t"
    assert copy.value(_STATE) == 200
    assert copy.value(_REGISTER) == 200
    copy.commit()
    worker.commit()


@pytest.mark.parametrize("step", [_STATE, _REGISTER])
def test_a_copy_does_not_wait_for_whoever_waits_for_it(
    sessions: tuple[vdb.Database, vdb.Database], step: str
) -> None:
    """`add-table` of a table that is being copied: it has the node and waits for the table."""
    copy, command = sessions
    with ThreadPoolExecutor(1) as pool:
        copy.execute(_HOLD)
        copy.execute(_STRUCT)
        command.execute("set lock_timeout = '60s'")
        added = pool.submit(command.value, _LOCAL)
        waits = "select count(*) from pg_locks where not granted and locktype <> 'relation'"
        with vdb.connect(copy.connstr, autocommit=True) as third:
            assert until(lambda: third.value(waits))
        assert copy.value(step) == 200
        copy.commit()
        assert added.result(30) == "Table already added: public.t"
    command.commit()


def test_a_batch_that_removes_one_table_and_adds_another(
    sessions: tuple[vdb.Database, vdb.Database],
) -> None:
    """The worker holds a table's row when it comes to the node's: it must not wait there."""
    command, worker = sessions
    worker.execute(_REMOVE)
    assert command.value(_LOCAL) == "Table already added: public.t"  # holds the node's row
    assert worker.value(_GLOBAL) == "Table already added: public.t"
    text = "select ret_note from londiste.global_add_table('q', 'public.w')"
    assert worker.value(text) == "Table added: public.w"
    worker.commit()
    command.commit()
