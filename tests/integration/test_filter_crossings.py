"""Random histories of rows that move in and out of conditions: a node has just its part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.integration.test_replay_histories import Session
from tests.labs.in_process import run_here
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur.change.attrs import encode_attrs
from vedur.pipeline.replay import stage as replay
from vedur.queue import batches

pytestmark = [
    pytest.mark.hypothesis,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

DDL = 'create table {} (id int primary key, n int, "No te" text, secret text)'

#: table: (name and DDL here, attributes, the provider's rows that belong here)
TABLES: dict[str, tuple[str, str, dict[str, str | None], str]] = {
    "public.f": (
        "public.f",
        DDL.format("f"),
        {"copy_condition": 'n < 3 and "No te" is not null -- few'},
        'select f::text from f where n < 3 and "No te" is not null order by 1',
    ),
    "public.g": (
        "other.g2",
        "create schema other; create table other.g2 (note text, key int primary key, amount int,"
        " mine text default 'local')",
        {
            "copy_condition": "g2.amount between 2 and 4 or note like 'k%'",
            "columns": 'id=key,n=amount,"No te"=note',
        },
        "select row(\"No te\", id, n, 'local')::text from g"
        " where n between 2 and 4 or \"No te\" like 'k%' order by 1",
    ),
    # an update of the key alone moves rows across this one
    "public.h": (
        "public.h",
        "create table h (id int primary key, n int)",
        {"copy_condition": "id % 2 = 0", "columns": "id,n"},
        "select row(id, n)::text from h where id % 2 = 0 order by 1",
    ),
}

_id = st.integers(1, 6)
_n = st.one_of(st.none(), st.integers(0, 5))
_text = st.sampled_from([None, "", "k", "kk\t", "x", "ü'\\"])
_table = st.sampled_from(["f", "g", "h"])


def _op(text: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(_table.map(lambda t: text.replace("TBL", t)), st.tuples(*values))


OPS = st.one_of(
    _op("insert into TBL values (%s, %s, %s, %s)", _id, _n, _text, _text),
    _op("insert into TBL values (%s, %s, %s, %s)", _id, _n, _text, _text),
    _op("update TBL set n = %s where id = %s", _n, _id),
    _op("update TBL set n = n + %s where id >= %s", _id, _id),
    _op('update TBL set "No te" = %s where id = %s', _text, _id),
    _op("update TBL set secret = %s where id <= %s", _text, _id),
    _op("update TBL set id = %s where id = %s", _id, _id),
    _op("update TBL set id = %s, n = %s where id = %s", _id, _n, _id),
    _op("delete from TBL where id = %s", _id),
    _op("truncate TBL"),
    st.tuples(
        st.sampled_from(["commit", "commit", "tick", "savepoint", "rollback to"]), st.just(())
    ),
)

HISTORY = st.lists(st.tuples(st.integers(0, 1), OPS), min_size=10, max_size=60)


def _lab(make_leaf: Callable[..., Leaf], flags: str | None) -> Leaf:
    leaf = make_leaf("ours")
    for name, (dest, dest_ddl, attrs, _) in TABLES.items():
        ddl = DDL.format(name.removeprefix("public."))
        leaf.pair.table(name, ddl, dest=dest, dest_ddl=dest_ddl, flags=flags)
        call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, name, encode_attrs(attrs))
    leaf.catch_up()
    return leaf


@pytest.mark.draw("filters")
@pytest.mark.parametrize("flags", [None, "AIUDJ"], ids=["urlenc", "json"])
@pytest.mark.parametrize(
    ("count", "row_by_row"),
    [(examples(20, 500), False), (examples(12, 200), True), (4, False)],
    ids=["in-process", "row-by-row", "spark"],
)
def test_a_node_has_the_rows_of_its_conditions(
    make_leaf: Callable[..., Leaf],
    monkeypatch: pytest.MonkeyPatch,
    flags: str | None,
    count: int,
    row_by_row: bool,
) -> None:
    if count > 4:
        monkeypatch.setattr(replay, "run_tasks", run_here)
    monkeypatch.setattr(batches, "EVENTS_PER_SLICE", 1)
    leaf = _lab(make_leaf, flags)
    if row_by_row:
        leaf.appliers[-1].log_tables |= TABLES.keys()
    sessions = [Session(leaf.root.connstr) for _ in range(2)]

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(
        history=HISTORY,
        parallel=st.sampled_from([1, 3]),
        flush=st.sampled_from([1, 400, 1 << 20]),
        least=st.sampled_from([1, 2, 32]),  # rows that are taken by column
        batch=st.sampled_from([1, 7, 100_000]),
    )
    def run(
        history: list[tuple[int, tuple[str, tuple[Any, ...]]]],
        parallel: int,
        flush: int,
        least: int,
        batch: int,
    ) -> None:
        for number, (text, params) in history:
            if text == "tick":
                leaf.pair.tick()
            else:
                sessions[number].run(text, params)
        for session in sessions:
            session.run("commit", ())
        leaf.pair.tick()
        runner = leaf.runner
        leaf.worker.settings = dataclasses.replace(leaf.worker.settings, max_batch_events=batch)
        runner.parallel, runner.max_batch_events = parallel, batch
        runner.applier.flush_bytes = flush
        runner.applier.least_run = least  # type: ignore[attr-defined]
        while leaf.worker.work():
            pass
        for name, (dest, _, _, want) in TABLES.items():
            got = leaf.leaf.query(f"select t::text from {dest} t order by 1")
            assert got == leaf.root.query(want), name

    run()
    for session in sessions:
        session.db.close()
