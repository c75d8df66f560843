"""Rows in partitions by time: replay, first copy, compare and repair of `dispatch`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wants import wanting
from tests.labs.first_copy import Lab, quick_lab
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from tests.labs.upstream_dispatch import is_there, run_upstream
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import StateError, VedurError
from vedur.handlers.registry import handler_attr
from vedur.ops.compare_tables import handler_refusal

__all__ = ["quick_lab", "quick_leaf", "without_spark"]

DDL = "create table t (id int primary key, at timestamp, v text)"
DECLARED = (
    "create table t (id int, at timestamp, v text, primary key (id, at)) partition by range (at)"
)


def spread(db: Database, table: str = "t") -> dict[str, list[str]]:
    """The rows by the table that they are in."""
    rows = db.query(
        f"select tableoid::regclass::text as part, t::text as row from {table} t order by 1, 2"
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.part, []).append(row.row)
    return found


def begin(leaf: Leaf, handler: str, args: Sequence[str] = (), ddl: str = DDL) -> None:
    leaf.pair.table("public.t", DDL, dest_ddl=ddl)
    set_handler(leaf.leaf, "public.t", handler_attr(handler, list(args)))


def written_at(leaf: Leaf, moment: str, *statements: str) -> None:
    """Write on the root as if the clock had shown that time."""
    last = leaf.root.value("select coalesce(max(ev_id), 0) from pgq.event_template")
    for statement in statements:
        leaf.root.execute(statement)
    events = leaf.root.value("select pgq.current_event_table(%s)", [QUEUE])
    leaf.root.execute(
        f"update {events} set ev_time = %s::timestamp where ev_id > %s", [moment, last]
    )


@pytest.fixture(params=["net", "one by one"])
def applied(request: pytest.FixtureRequest) -> str:
    """How changes are applied: as net changes, or event by event."""
    return str(request.param)


def start(leaf: Leaf, applied: str) -> None:
    leaf.catch_up()
    if applied == "one by one":
        leaf.runner.applier.log_tables.add("public.t")


def catch_up_at(leaf: Leaf, moment: str) -> None:
    """Apply all that the queue has, as a batch that ended at that time."""
    tick = leaf.pair.tick()
    leaf.root.execute(
        "update pgq.tick set tick_time = %s::timestamp where tick_id >= %s", [moment, tick]
    )
    while leaf.worker.work():
        pass


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
@pytest.mark.parametrize("row_mode", ["keep_latest", "plain"])
def test_a_column_decides_and_rows_move_with_it(
    quick_leaf: Callable[..., Leaf], ddl: str, row_mode: str, applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at", f"row_mode={row_mode}"], ddl)
    start(leaf, applied)
    leaf.root.execute(
        "insert into t values (1, '2026-03-01 10:00', 'a'), (2, '2026-03-02 00:00', 'b'),"
        " (3, '2026-03-02 23:59:59.9', 'c')"
    )
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_01": ['(1,"2026-03-01 10:00:00",a)'],
        "t_2026_03_02": ['(2,"2026-03-02 00:00:00",b)', '(3,"2026-03-02 23:59:59.9",c)'],
    }
    leaf.root.execute("update t set at = '2026-03-05' where id = 1; delete from t where id = 2")
    leaf.root.execute("update t set v = 'd' where id = 3")
    leaf.root.execute("update t set id = 4 where id = 3")
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_02": ['(4,"2026-03-02 23:59:59.9",d)'],
        "t_2026_03_05": ['(1,"2026-03-05 00:00:00",a)'],
    }
    leaf.root.execute("truncate t; insert into t values (9, '2026-03-01', 'z')")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_01": ['(9,"2026-03-01 00:00:00",z)']}


def test_the_time_of_events_decides(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "hourly_event")
    start(leaf, applied)
    written_at(leaf, "2026-03-01 10:59:59", "insert into t values (1, null, 'a'), (2, null, 'b')")
    written_at(leaf, "2026-03-01 11:00:00", "update t set v = 'A' where id = 1")
    written_at(leaf, "2026-03-01 11:30:00", "update t set v = 'AA' where id = 1")
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_01_10": ["(1,,a)", "(2,,b)"],
        "t_2026_03_01_11": ["(1,,AA)"],
    }
    # a row that is deleted in one hour and comes again in another
    written_at(leaf, "2026-03-01 11:40:00", "delete from t where id = 2")
    written_at(leaf, "2026-03-01 10:58:00", "insert into t values (2, null, 'again')")
    written_at(leaf, "2026-03-01 11:41:00", "delete from t where id = 1")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_01_10": ["(1,,a)", "(2,,again)"]}


def test_the_time_of_the_batch_decides(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "monthly_batch")
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, null, 'a'), (2, null, 'b')")
    catch_up_at(leaf, "2026-03-31 23:59:59")
    leaf.root.execute("update t set v = 'A' where id = 1; delete from t where id = 2")
    catch_up_at(leaf, "2026-04-01 00:00:00")
    assert spread(leaf.leaf) == {"t_2026_03": ["(1,,a)", "(2,,b)"], "t_2026_04": ["(1,,A)"]}


def test_the_clock_decides(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "yearly_time")
    leaf.root.execute("insert into t values (1, null, 'a')")
    before = leaf.leaf.value("select extract(year from now())::int")
    leaf.catch_up()
    after = leaf.leaf.value("select extract(year from now())::int")
    (part,) = spread(leaf.leaf)
    assert part in (f"t_{before}", f"t_{after}")


@pytest.mark.parametrize("mode", ["event_time", "date_field"])
def test_all_versions_are_kept(quick_leaf: Callable[..., Leaf], mode: str) -> None:
    leaf = quick_leaf()
    field = ["part_field=at"] if mode == "date_field" else []
    args = [f"part_mode={mode}", "row_mode=keep_all", *field]
    begin(leaf, "dispatch", args, "create table t (id int, at timestamp, v text)")
    written_at(leaf, "2026-03-01 10:00", "insert into t values (1, '2026-03-01', 'a')")
    written_at(leaf, "2026-03-01 11:00", "update t set v = 'b'", "update t set v = 'c'")
    written_at(leaf, "2026-03-01 12:00", "delete from t")
    leaf.catch_up()
    rows = [f'(1,"2026-03-01 00:00:00",{v})' for v in "abc"]
    assert spread(leaf.leaf) == {"t_2026_03_01": rows}
    (table,) = get_table_list(leaf.leaf, QUEUE)
    assert "all versions" in handler_refusal(table)


def test_only_some_changes(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_event", ["event_types=I,D"])
    written_at(leaf, "2026-03-01", "insert into t values (1, null, 'a'), (2, null, 'b')")
    written_at(leaf, "2026-03-01", "update t set v = 'A'", "delete from t where id = 2")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_01": ["(1,,a)"]}


def test_a_plain_update_of_another_period_finds_no_row(
    quick_leaf: Callable[..., Leaf], applied: str, caplog: pytest.LogCaptureFixture
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_event", ["row_mode=plain"])
    start(leaf, applied)
    written_at(leaf, "2026-03-01", "insert into t values (1, null, 'a')")
    written_at(leaf, "2026-03-01", "update t set v = 'b'")
    leaf.catch_up()
    written_at(leaf, "2026-03-02", "update t set v = 'c'")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_01": ["(1,,b)"]}
    assert "found no row" in caplog.text


@pytest.mark.parametrize("ignore", [0, 1])
def test_old_partitions_go(quick_leaf: Callable[..., Leaf], ignore: int, applied: str) -> None:
    leaf = quick_leaf()
    args = ["part_field=at", "retention_period=2 days", f"ignore_old_events={ignore}"]
    begin(leaf, "daily_field", args)
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, now() - interval '9 days', 'old')")
    leaf.catch_up()
    assert len(spread(leaf.leaf)) == 1 - ignore
    leaf.root.execute("insert into t values (2, now(), 'new')")
    leaf.catch_up()
    assert [row.v for row in leaf.leaf.query("select v from t")] == ["new"]
    # what the provider has of old rows can change, and go
    leaf.root.execute("update t set v = 'older' where id = 1")
    leaf.catch_up()
    assert leaf.leaf.value("select count(*) from t where id = 1") == 1 - ignore
    leaf.root.execute("delete from t")
    leaf.catch_up()
    assert spread(leaf.leaf) == {}
    (table,) = get_table_list(leaf.leaf, QUEUE)
    assert "retention_period" in handler_refusal(table)


def test_partitions_are_made_as_the_operator_says(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.leaf.execute("create table made (what text)")
    begin(
        leaf,
        "daily_event",
        [
            "part_name=%(parent)s__%(day)s_%(month)s_%(year)s",
            "pre_part=insert into made values ('before %(part)s 100%%')",
            "part_template=create table %(part)s (check (v <> '%%s')) inherits (%(parent)s);"
            " alter table %(part)s add primary key (%(pkeys)s)",
            "post_part=insert into made values ('after %(part_time)s %(period)s')",
        ],
    )
    written_at(leaf, "2026-03-01 10:00", "insert into t values (1, null, 'a')")
    leaf.catch_up()
    written_at(leaf, "2026-03-01 11:00", "insert into t values (2, null, 'b')")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t__01_03_2026": ["(1,,a)", "(2,,b)"]}
    assert [row.what for row in leaf.leaf.query("select what from made")] == [
        "before public.t__01_03_2026 100%",
        "after 2026-03-01 00:00:00 day",
    ]


def test_a_function_makes_partitions(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.leaf.execute(
        "create function make(parent text, part text, keys text, field text, at timestamptz,"
        " period text) returns void language plpgsql as $$ begin"
        " execute format('create table %s (like %s including all) inherits (%2$s)', part, parent);"
        " execute format('comment on table %s is %L', part, concat_ws(' ', keys, field, period));"
        " end $$"
    )
    begin(leaf, "daily_field", ["part_field=at", "part_func=public.make"])
    leaf.root.execute("insert into t values (1, '2026-03-01 10:00', 'a')")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_01": ['(1,"2026-03-01 10:00:00",a)']}
    text = "select obj_description('t_2026_03_01'::regclass)"
    assert leaf.leaf.value(text) == "id at day"


@pytest.mark.parametrize(
    "handler, args, ddl, problem",
    [
        ("daily_event", [], DECLARED, "part_mode=date_field"),
        ("daily_event", [], "create table t (id int, at timestamp, v text)", "primary key"),
        ("daily_field", ["part_field=when"], DDL, 'no column "when"'),
        ("daily_field", ["part_field=v"], DDL, "type text"),
        (
            "daily_field",
            ["part_field=at", "retention_period=1 day", "ignore_old_events=1"],
            DECLARED,
            "refuses rows without a partition",
        ),
        (
            "daily_event",
            [],
            "create table t (id int primary key, at timestamp, v text, vedur_part int)",
            "has a name that is needed",
        ),
    ],
)
def test_tables_that_cannot_be_spread(
    quick_leaf: Callable[..., Leaf], handler: str, args: list[str], ddl: str, problem: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, handler, args, ddl)
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a')")
    with pytest.raises(StateError, match=re.escape(problem)):
        leaf.catch_up()
    assert spread(leaf.leaf) == {}


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_row_without_a_time_stops_the_batch_by_name(
    quick_leaf: Callable[..., Leaf], ddl: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], ddl)
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a')")
    leaf.root.execute("insert into t values (2, null, 'b'), (3, 'infinity', 'c')")
    with pytest.raises(VedurError, match=r"ev_id=.*no partition of table .* is for the time"):
        leaf.catch_up()
    assert spread(leaf.leaf) == {}


def test_names_that_the_server_would_cut(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_event", ["part_name=%(parent)s_" + "x" * 60 + "%(year)s%(month)s%(day)s"])
    leaf.root.execute("insert into t values (1, null, 'a')")
    with pytest.raises(VedurError, match="longer than 63 bytes"):
        leaf.catch_up()


def test_days_are_those_of_the_database(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    zoned = "create table t (id int primary key, at timestamptz, v text)"
    name = leaf.leaf.value("select quote_ident(current_database())")
    leaf.leaf.execute(f"alter database {name} set timezone = 'America/New_York'")
    leaf.pair.table("public.t", zoned)
    set_handler(leaf.leaf, "public.t", handler_attr("daily_field", ["part_field=at"]))
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, '2026-03-02 03:00+00', 'a')")
    leaf.catch_up()
    assert list(spread(leaf.leaf)) == ["t_2026_03_01"]


def test_a_part_of_the_rows_in_partitions(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"])
    attrs = leaf.leaf.value(
        "select table_attrs from londiste.table_info where queue_name = %s", [QUEUE]
    )
    more = f"{attrs}&copy_condition=v+%3C%3E+%27no%27"
    leaf.leaf.execute("select londiste.local_set_table_attrs(%s, 'public.t', %s)", [QUEUE, more])
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a'), (2, '2026-03-02', 'no')")
    leaf.catch_up()
    assert list(spread(leaf.leaf)) == ["t_2026_03_01"]
    leaf.root.execute("update t set v = 'no' where id = 1; update t set v = 'yes' where id = 2")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_02": ['(2,"2026-03-02 00:00:00",yes)']}


# -- first copy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_first_copy_goes_to_partitions(quick_lab: Lab, ddl: str) -> None:
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(ddl)
    lab.root.execute(
        "insert into t select i, timestamp '2026-03-01' + i * interval '5 hours', 'x'"
        " from generate_series(1, 50) i"
    )
    attrs = "handler=" + handler_attr("daily_field", ["part_field=at"]).replace("=", "%3D")
    lab.add("public.t", attrs=attrs)
    lab.start()
    lab.wait_ok()
    lab.write(
        "update t set at = at + interval '20 days' where id < 10", "delete from t where id = 20"
    )
    lab.settle()
    lab.same("t")
    found = spread(lab.leaf)
    assert "t" not in found and len(found) > 10
    lab.leaf.execute("set session_replication_role = replica")
    lab.leaf.execute("insert into t_2026_03_02 values (1000, '2026-03-02', 'not there')")
    lab.leaf.execute("select londiste.local_set_table_state(%s, 'public.t', null, null)", [QUEUE])
    lab.wait_ok()
    lab.settle()
    lab.same("t")


# -- histories ------------------------------------------------------------------------------------

_IDS = st.integers(1, 4)
_STEPS = st.one_of(
    st.tuples(st.just("put"), _IDS, st.sampled_from("abc"), st.integers(1, 3)),
    st.tuples(st.just("delete"), _IDS),
    st.tuples(st.just("rename"), _IDS, _IDS),
)
_BATCHES = st.lists(st.lists(_STEPS, min_size=1, max_size=6), min_size=1, max_size=4)

Row = tuple[int, str, str]
Events = list[tuple[str, Row]]


class Source:
    """The root's table: steps become statements, and the events that they write."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def apply(self, step: tuple[Any, ...]) -> tuple[str, Events]:
        kind, key = step[0], step[1]
        old = self.rows.get(key)
        if kind == "put":
            new = (key, f"2026-03-0{step[3]} 00:00:00", step[2])
            self.rows[key] = new
            if old == new:
                return "", []
            if old is None:
                return f"insert into t values ({key}, '{new[1]}', '{new[2]}')", [("I", new)]
            text = f"update t set at = '{new[1]}', v = '{new[2]}' where id = {key}"
            return text, [("U", new)]
        if old is None or (kind == "rename" and step[2] in self.rows):
            return "", []
        del self.rows[key]
        if kind == "delete":
            return f"delete from t where id = {key}", [("D", old)]
        self.rows[step[2]] = (step[2], *old[1:])
        text = f"update t set id = {step[2]} where id = {key}"
        return text, [("D", old), ("I", self.rows[step[2]])]


def empty(leaf: Leaf) -> None:
    """Begin an example: no rows, no partitions."""
    leaf.root.execute("truncate t")
    leaf.catch_up()
    for row in leaf.leaf.query("select inhrelid::regclass::text as part from pg_inherits"):
        leaf.leaf.execute(f"drop table {row.part}")


def as_row(row: Row) -> str:
    return f'({row[0]},"{row[1]}",{row[2]})'


@pytest.mark.hypothesis
@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_histories_by_a_column(quick_leaf: Callable[..., Leaf], ddl: str, applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], ddl)
    start(leaf, applied)

    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(_BATCHES)
    def check(batches: list[list[tuple[Any, ...]]]) -> None:
        empty(leaf)
        source = Source()
        for batch in batches:
            for step in batch:
                text, _ = source.apply(step)
                if text:
                    leaf.root.execute(text)
            leaf.catch_up()
            expected: dict[str, list[str]] = {}
            for row in sorted(source.rows.values()):
                day = row[1][:10].replace("-", "_")
                expected.setdefault(f"t_{day}", []).append(as_row(row))
            assert spread(leaf.leaf) == expected

    check()


@pytest.mark.hypothesis
@pytest.mark.skipif(not is_there(), reason=wanting("upstream's londiste"))
@pytest.mark.parametrize("handler", ["hourly_event", "hourly_batch"])
def test_histories_by_time_as_upstream_applies_them(
    quick_leaf: Callable[..., Leaf], handler: str, applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, handler)
    leaf.leaf.execute("create schema up; create table up.t (like t including all)")
    start(leaf, applied)

    @settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
    @given(_BATCHES)
    def check(batches: list[list[tuple[Any, ...]]]) -> None:
        empty(leaf)
        source, told, clock = Source(), [], 0
        for batch in batches:
            events = []
            for step in batch:
                clock += 25
                moment = f"2026-03-01 {clock // 60:02}:{clock % 60:02}:00"
                text, written = source.apply(step)
                if text:
                    written_at(leaf, moment, text)
                for op, row in written:
                    values = dict(zip(("id", "at", "v"), map(str, row), strict=True))
                    events.append({"type": f"{op}:id", "row": values, "time": moment})
            end = f"2026-03-01 {clock // 60:02}:{clock % 60:02}:59"
            told.append({"end": end, "events": events})
            catch_up_at(leaf, end)
        run_upstream(leaf.leaf.connstr, "up.t", handler, {}, told)
        theirs = {
            part.removeprefix("up."): rows for part, rows in spread(leaf.leaf, "up.t").items()
        }
        assert spread(leaf.leaf) == theirs

    check()
