"""A worker that dies when a table is ok, before the copy's consumer is given up.

Such a consumer would keep the queue on the provider from rotating for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur import failpoint
from vedur.errors import ConnectError

pytestmark = [pytest.mark.spark]

DDL = "create table t (id int primary key, a text)"
CONSUMERS = "select count(*) from pgq.get_consumer_info() where consumer_name like '%.copy.%'"
FINISHED = "select finished_at is not null from vedur.copy_progress"


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    made.root.execute(DDL)
    made.leaf.execute(DDL)
    made.root.execute("insert into t select g, 'x' from generate_series(1, 1000) g")
    made.add("public.t")
    yield made
    failpoint.set_hook(None)
    made.close()


def fail_once_at(name: str) -> threading.Event:
    """The next time that this place is reached there is an error."""
    failed = threading.Event()

    def hook(place: str) -> None:
        if place == name and not failed.is_set():
            failed.set()
            raise ConnectError("the process died here")

    failpoint.set_hook(hook)
    return failed


@pytest.mark.parametrize("restart", [True, False], ids=["next worker", "same worker"])
def test_the_consumer_of_a_finished_copy_is_given_up_after_a_crash(lab: Lab, restart: bool) -> None:
    failed = fail_once_at("copy.ok")
    lab.retry_sleep = 3600 if restart else 0.2
    lab.start()
    lab.wait_until(failed.is_set)
    if restart:
        lab.stop()
        assert lab.leaf.value("select merge_state from londiste.table_info") == "ok"
        assert lab.root.value(CONSUMERS) == 1
        lab.retry_sleep = 0.2
        lab.start()
    lab.wait_until(lambda: lab.root.value(CONSUMERS) == 0 and lab.leaf.value(FINISHED))
    lab.settle()
    lab.same("t")
    lab.wait_until(lambda: lab.debris() == [])
