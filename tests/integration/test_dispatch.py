"""Rows in partitions by time: replay, first copy, compare and repair of `dispatch`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.first_copy import Lab, quick_lab
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import StateError, VedurError
from vedur.handlers.registry import handler_attr
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.compare_tables import handler_refusal
from vedur.ops.session import Session
from vedur.pipeline.copy import load
from vedur.pipeline.replay.staging_tables import load_specs

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


def begin(
    leaf: Leaf, handler: str, args: Sequence[str] = (), ddl: str = DDL, name: str = "t"
) -> None:
    """Add a table, in sync from the start, with a handler on the leaf."""
    there, here = (text.replace("table t ", f"table {name} ") for text in (DDL, ddl))
    leaf.pair.table(f"public.{name}", there, dest_ddl=here)
    set_handler(leaf.leaf, f"public.{name}", handler_attr(handler, list(args)))


def last_event(leaf: Leaf) -> int:
    return int(leaf.root.value("select coalesce(max(ev_id), 0) from pgq.event_template"))


def written_at(leaf: Leaf, moment: str, *statements: str) -> None:
    """Write on the root as if the clock had shown that time."""
    last = last_event(leaf)
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


def start(leaf: Leaf, applied: str, *names: str) -> None:
    leaf.catch_up()
    if applied == "one by one":
        applier = leaf.runner.applier
        applier.log_tables |= {f"public.{name}" for name in names or ("t",)}


def catch_up_at(leaf: Leaf, moment: str) -> None:
    """Apply all that the queue has, as a batch that ended at that time."""
    tick = leaf.pair.tick()
    leaf.root.execute(
        "update pgq.tick set tick_time = %s::timestamp where tick_id >= %s", [moment, tick]
    )
    while leaf.worker.work():
        pass


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_column_decides_and_rows_move_with_it(
    quick_leaf: Callable[..., Leaf], ddl: str, applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], ddl)
    begin(leaf, "dispatch", ["part_mode=date_field", "part_field=at"], ddl, "plain")
    start(leaf, applied, "t", "plain")

    def write(*statements: str) -> None:
        for statement in statements:
            for name in ("t", "plain"):
                leaf.root.execute(statement.format(name))
        leaf.catch_up()

    def rows(name: str, **parts: list[str]) -> None:
        assert spread(leaf.leaf, name) == {f"{name}_2026_03_{k[1:]}": v for k, v in parts.items()}

    write(
        "insert into {} values (1, '2026-03-01 10:00', 'a'), (2, '2026-03-02 00:00', 'b'),"
        " (3, '2026-03-02 23:59:59.9', 'c')"
    )
    for name in ("t", "plain"):
        rows(
            name,
            d01=['(1,"2026-03-01 10:00:00",a)'],
            d02=['(2,"2026-03-02 00:00:00",b)', '(3,"2026-03-02 23:59:59.9",c)'],
        )
    write(
        "update {} set at = '2026-03-05' where id = 1",
        "delete from {} where id = 2",
        "update {} set v = 'd' where id = 3",
        "update {} set id = 4 where id = 3",
    )
    for name in ("t", "plain"):
        rows(
            name,
            d02=['(4,"2026-03-02 23:59:59.9",d)'],
            d05=['(1,"2026-03-05 00:00:00",a)'],
        )
    # an update of a row that is not here brings it, or does nothing
    leaf.leaf.execute("set session_replication_role = replica; delete from t; delete from plain")
    write("update {} set v = 'e' where id = 1")
    rows("t", d05=['(1,"2026-03-05 00:00:00",e)'])
    rows("plain")
    write("truncate {}", "insert into {} values (9, '2026-03-01', 'z')")
    for name in ("t", "plain"):
        rows(name, d01=['(9,"2026-03-01 00:00:00",z)'])


def test_times_decide(
    quick_leaf: Callable[..., Leaf], applied: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of events, of the batch, of the clock; in all row modes."""
    leaf = quick_leaf()
    begin(leaf, "hourly_event")
    begin(leaf, "monthly_batch", name="b")
    begin(leaf, "yearly_time", name="y")
    begin(leaf, "hourly_event", ["row_mode=plain"], name="plain")
    begin(leaf, "hourly_event", ["event_types=I,D"], name="few")
    begin(leaf, "hourly_event", ["row_mode=keep_all"], name="k")
    leaf.leaf.execute("alter table k drop constraint k_pkey")
    names = ("t", "b", "y", "plain", "few", "k")
    start(leaf, applied, *names)

    def write(moment: str, statement: str) -> None:
        written_at(leaf, moment, *(statement.format(name) for name in names))

    write("2026-03-01 10:59:59", "insert into {} values (1, null, 'a'), (2, null, 'b')")
    write("2026-03-01 11:00:00", "update {} set v = 'A' where id = 1")
    write("2026-03-01 11:30:00", "update {} set v = 'AA' where id = 1")
    catch_up_at(leaf, "2026-03-31 23:59:59")
    ten, eleven = "t_2026_03_01_10", "t_2026_03_01_11"
    assert spread(leaf.leaf) == {ten: ["(1,,a)", "(2,,b)"], eleven: ["(1,,AA)"]}
    # a row that is deleted in one hour and comes again in another
    write("2026-03-01 11:40:00", "delete from {} where id = 2")
    write("2026-03-01 10:58:00", "insert into {} values (3, null, 'c')")
    written_at(leaf, "2026-03-01 10:58:00", "insert into t values (2, null, 'again')")
    write("2026-03-01 11:41:00", "delete from {} where id = 1")
    catch_up_at(leaf, "2026-04-01 00:00:00")
    assert spread(leaf.leaf) == {ten: ["(1,,a)", "(2,,again)", "(3,,c)"]}
    assert spread(leaf.leaf, "plain") == {"plain_2026_03_01_10": ["(1,,a)", "(2,,b)", "(3,,c)"]}
    assert "changed no row" in caplog.text
    assert spread(leaf.leaf, "few") == {"few_2026_03_01_10": ["(1,,a)", "(2,,b)", "(3,,c)"]}
    assert spread(leaf.leaf, "k") == {
        "k_2026_03_01_10": ["(1,,a)", "(2,,b)", "(3,,c)"],
        "k_2026_03_01_11": ["(1,,A)", "(1,,AA)"],
    }
    assert spread(leaf.leaf, "b") == {"b_2026_03": ["(1,,AA)", "(2,,b)"], "b_2026_04": ["(3,,c)"]}
    (year,) = spread(leaf.leaf, "y")
    now = leaf.leaf.value("select extract(year from now())::int")
    assert year in (f"y_{now}", f"y_{now - 1}")
    for table in get_table_list(leaf.leaf, QUEUE):
        assert "history" in handler_refusal(table) or "all versions" in handler_refusal(table)


def test_old_partitions_go(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    args = ["part_field=at", "retention_period=2 days"]
    begin(leaf, "daily_field", args)
    begin(leaf, "daily_field", [*args, "ignore_old_events=1"], name="strict")
    start(leaf, applied, "t", "strict")

    def write(statement: str) -> tuple[list[str], list[str]]:
        for name in ("t", "strict"):
            leaf.root.execute(statement.format(name))
        leaf.catch_up()
        t, strict = (
            [row.v for row in leaf.leaf.query(f"select v from {name} order by id")]
            for name in ("t", "strict")
        )
        return t, strict

    # where old rows are not left out, they stay until another partition is made
    assert write("insert into {} values (1, now() - interval '9 days', 'old')") == (["old"], [])
    assert write("insert into {} values (2, now(), 'new')") == (["new"], ["new"])
    done = write("update {} set v = 'older' where id = 1")
    assert done == (["older", "new"], ["new"])
    assert write("delete from {}") == ([], [])
    for table in get_table_list(leaf.leaf, QUEUE):
        assert "retention_period" in handler_refusal(table)


def test_partitions_are_made_as_the_operator_says(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.leaf.execute("create table made (what text)")
    leaf.leaf.execute(
        "create function make(parent text, part text, keys text, field text, at timestamptz,"
        " period text) returns void language plpgsql as $$ begin"
        " execute format('create table %s (like %s including all) inherits (%2$s)', part, parent);"
        " execute format('comment on table %s is %L', part, concat_ws(' ', keys, field, period));"
        " end $$"
    )
    begin(leaf, "daily_field", ["part_field=at", "part_func=public.make"], name="f")
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
    for hour in (10, 11):
        written_at(leaf, f"2026-03-01 {hour}:00", f"insert into t values ({hour}, null, 'a')")
        leaf.root.execute(f"insert into f values ({hour}, '2026-03-01 10:00', 'a')")
        leaf.catch_up()
    assert spread(leaf.leaf) == {"t__01_03_2026": ["(10,,a)", "(11,,a)"]}
    assert [row.what for row in leaf.leaf.query("select what from made")] == [
        "before public.t__01_03_2026 100%",
        "after 2026-03-01 00:00:00 day",
    ]
    assert list(spread(leaf.leaf, "f")) == ["f_2026_03_01"]
    assert leaf.leaf.value("select obj_description('f_2026_03_01'::regclass)") == "id at day"


REFUSED = [
    ("daily_event", [], DECLARED, "part_mode=date_field"),
    ("daily_event", [], DDL, "primary key"),
    ("daily_field", ["part_field=when"], DDL, 'no column "when"'),
    ("daily_field", ["part_field=v"], DDL, "type text"),
    (
        "daily_field",
        ["part_field=at", "retention_period=1 day", "ignore_old_events=1"],
        DECLARED,
        "refuses rows without a partition",
    ),
    ("daily_event", [], DDL.replace("v text", "v text, vedur_part int"), "name that is needed"),
    ("daily_field", ["part_field=v"], DDL.replace("v text", "v daterange"), "type daterange"),
    ("daily_field", ["part_field=v"], DDL.replace("v text", "v timestamp[]"), "type timestamp"),
    ("hourly_field", ["part_field=v"], DDL.replace("v text", "v date"), "has no hours"),
    ("daily_event", ["row_mode=keep_all"], DDL, "brings a key more than once"),
]


def test_tables_that_cannot_be_spread(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    for number, (handler, args, ddl, _) in enumerate(REFUSED):
        begin(leaf, handler, args, ddl, f"t{number}")
    leaf.leaf.execute("alter table t1 drop constraint t1_pkey")
    for number, table in enumerate(get_table_list(leaf.leaf, QUEUE)):
        with pytest.raises(StateError, match=re.escape(REFUSED[number][3])):
            load_specs(leaf.leaf, QUEUE, [table.mapping])
    leaf.root.execute("insert into t0 values (1, '2026-03-01', 'a')")
    with pytest.raises(StateError, match="cannot be spread over partitions"):
        leaf.catch_up()
    with Session(leaf.settings) as session:
        leaf.leaf.execute("select londiste.local_remove_table(%s, 'public.t2')", [QUEUE])
        wanted = AddTable(tables=["t2"], handler="daily_field", handler_args=["part_field=v"])
        with pytest.raises(StateError, match="chosen by a date or a timestamp"):
            add_table(session, wanted)
        add_table(session, replace(wanted, handler_args=["part_field=at"], expect_sync=True))
        for other in ("londiste", "daily_event"):
            with pytest.raises(StateError, match="are in partitions, where the new handler"):
                change_handler(session, ChangeHandler(table="t2", handler=other))
        longer = ["part_field=at", "retention_period=1 year"]
        change_handler(
            session, ChangeHandler(table="t2", handler="daily_field", handler_args=longer)
        )
    table = get_table_list(leaf.leaf, QUEUE).by_name["public.t2"]
    assert table.ready and table.mapping.partitions is not None
    assert table.mapping.partitions.retention == "1 year"


def test_change_handler_looks_at_the_table(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL)
    leaf.pair.table("public.z", "create table z (id int primary key, at timestamptz)")
    zone = leaf.leaf.value("select quote_ident(current_database())")
    leaf.leaf.execute(f"alter database {zone} set timezone = 'Europe/Berlin'")
    leaf.root.execute("insert into t values (1, null, 'a'), (2, '2026-03-01', 'b')")
    leaf.catch_up()

    def change(table: str, handler: str, *args: str) -> None:
        with Session(leaf.settings) as session:
            wanted = ChangeHandler(table=table, handler=handler, handler_args=list(args))
            change_handler(session, wanted)

    for table, handler, column, problem in (
        ("t", "daily_field", "nosuch", 'no column "nosuch"'),
        ("t", "daily_field", "at", "NULL or infinity"),
        ("z", "hourly_field", "at", "Europe/Berlin"),
    ):
        with pytest.raises(StateError, match=problem):
            change(table, handler, f"part_field={column}")
        assert get_table_list(leaf.leaf, QUEUE).by_name[f"public.{table}"].mapping.handler is None
    leaf.root.execute("update t set at = '2026-03-02' where id = 1")
    leaf.catch_up()
    change("t", "daily_field", "part_field=at")
    change("z", "daily_field", "part_field=at")
    leaf.root.execute("insert into t values (3, '2026-03-03', 'c')")
    leaf.catch_up()
    assert list(spread(leaf.leaf)) == ["t_2026_03_01", "t_2026_03_02", "t_2026_03_03"]


def test_another_table_of_the_name_is_left_alone(
    quick_leaf: Callable[..., Leaf], applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"])
    begin(leaf, "daily_event", name="e")
    start(leaf, applied, "t", "e")
    leaf.leaf.execute("create table t_2026_03_01 (like t); create table e_2026_03_01 (like e)")
    for name in ("t", "e"):
        text = f"insert into {name} values (1, '2026-03-01', 'a')"
        written_at(leaf, "2026-03-01 10:00:00", text)
        with pytest.raises(VedurError, match=f'{name}_2026_03_01" is no partition of'):
            leaf.catch_up()
        assert leaf.leaf.value(f"select count(*) from {name}_2026_03_01") == 0
        leaf.leaf.execute(f"drop table {name}_2026_03_01")
        leaf.catch_up()
        assert list(spread(leaf.leaf, name)) == [f"{name}_2026_03_01"]


def test_times_that_are_not_in_order(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    """A transaction that began earlier writes later: its events have earlier times."""
    leaf = quick_leaf()
    begin(leaf, "hourly_event")
    start(leaf, applied)
    written_at(leaf, "2026-03-01 10:50:00", "insert into t values (1, null, 'a')")
    leaf.catch_up()
    written_at(leaf, "2026-03-01 10:59:00", "delete from t where id = 1")
    written_at(leaf, "2026-03-01 11:00:00", "insert into t values (1, null, 'b')")
    written_at(leaf, "2026-03-01 10:58:00", "update t set v = 'c' where id = 1")
    # inserted and deleted in one hour, changed in it by the older transaction
    written_at(leaf, "2026-03-01 10:59:10", "insert into t values (2, null, 'a')")
    written_at(leaf, "2026-03-01 10:59:20", "delete from t where id = 2")
    written_at(leaf, "2026-03-01 11:00:10", "insert into t values (2, null, 'b')")
    written_at(leaf, "2026-03-01 10:58:00", "update t set v = 'c' where id = 2")
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_01_10": ["(1,,c)", "(2,,c)"],
        "t_2026_03_01_11": ["(1,,b)", "(2,,b)"],
    }
    # a history outlives its rows
    written_at(leaf, "2026-03-01 11:10:00", "insert into t values (3, null, 'a')")
    written_at(leaf, "2026-03-01 11:20:00", "truncate t")
    written_at(leaf, "2026-03-01 11:30:00", "insert into t values (1, null, 'd')")
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_01_10": ["(1,,c)", "(2,,c)"],
        "t_2026_03_01_11": ["(1,,d)", "(2,,b)", "(3,,a)"],
    }


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_columns_that_are_only_here_keep_their_values(
    quick_leaf: Callable[..., Leaf], ddl: str, applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], ddl.replace("v text", "v text, own int"))
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a'), (2, '2026-03-01', 'b')")
    leaf.catch_up()
    leaf.leaf.execute("set session_replication_role = replica; update t set own = 7")
    leaf.root.execute(
        "update t set v = 'c' where id = 1; update t set at = '2026-03-02' where id = 2"
    )
    leaf.catch_up()
    assert spread(leaf.leaf) == {
        "t_2026_03_01": ['(1,"2026-03-01 00:00:00",c,7)'],
        "t_2026_03_02": ['(2,"2026-03-02 00:00:00",b,7)'],
    }


def test_a_key_in_two_partitions_is_noticed(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"])
    begin(leaf, "dispatch", ["part_mode=date_field", "part_field=at"], name="plain")
    start(leaf, applied, "t", "plain")
    for name in ("t", "plain"):
        leaf.root.execute(
            f"insert into {name} values (1, '2026-03-01', 'a'), (2, '2026-03-02', 'b')"
        )
        leaf.catch_up()
        leaf.leaf.execute("set session_replication_role = replica")
        leaf.leaf.execute(f"insert into {name}_2026_03_02 values (1, '2026-03-02', 'twice')")
        leaf.root.execute(f"update {name} set v = 'c' where id = 1")
        with pytest.raises(VedurError, match=r"names several rows|duplicate key"):
            leaf.catch_up()
        leaf.leaf.execute(f"delete from {name}_2026_03_02 where id = 1")
        leaf.catch_up()
        leaf.leaf.execute(f"insert into {name}_2026_03_02 values (3, '2026-03-02', 'there')")
        leaf.root.execute(f"insert into {name} values (3, '2026-03-01', 'd')")
        with pytest.raises(VedurError, match="is there already"):
            leaf.catch_up()
        leaf.leaf.execute(f"delete from {name}_2026_03_02 where id = 3")
        leaf.catch_up()


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_hours_that_the_zone_of_the_database_has_not(
    quick_leaf: Callable[..., Leaf], ddl: str
) -> None:
    leaf = quick_leaf()
    name = leaf.leaf.value("select quote_ident(current_database())")
    leaf.leaf.execute(f"alter database {name} set timezone = 'Europe/Berlin'")
    begin(leaf, "hourly_field", ["part_field=at"], ddl)
    start(leaf, "net")
    for day, hours in (("2026-03-29", (1, 2, 3)), ("2026-10-25", (1, 2, 3))):
        for hour in hours:
            leaf.root.execute(f"insert into t values ({day[6]}{hour}, '{day} 0{hour}:30', 'a')")
    leaf.catch_up()
    assert list(spread(leaf.leaf)) == [
        f"t_2026_{day}_0{hour}" for day in ("03_29", "10_25") for hour in (1, 2, 3)
    ]


def test_rows_without_a_place_stop_the_batch_by_name(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"])
    begin(leaf, "daily_field", ["part_field=at"], DECLARED, "d")
    long = "part_name=%(parent)s_" + "x" * 60 + "%(year)s%(month)s%(day)s"
    begin(leaf, "daily_event", [long], name="long")
    bad = [
        ("insert into t values (2, null, 'b')", "is for the time"),
        ("insert into d values (3, 'infinity', 'c')", "is for the time"),
        ("insert into long values (4, null, 'd')", "longer than 63 bytes"),
    ]
    for statement, problem in bad:
        leaf.root.execute(statement)
        with pytest.raises(VedurError, match=rf"ev_id=.*{problem}"):
            leaf.catch_up()
        assert [spread(leaf.leaf, name) for name in ("t", "d", "long")] == [{}, {}, {}]
        events = leaf.root.value("select pgq.current_event_table(%s)", [QUEUE])
        leaf.root.execute(f"delete from {events}")


def test_the_zone_of_the_database_and_a_part_of_the_rows(
    quick_leaf: Callable[..., Leaf], applied: str
) -> None:
    leaf = quick_leaf()
    name = leaf.leaf.value("select quote_ident(current_database())")
    leaf.leaf.execute(f"alter database {name} set timezone = 'America/New_York'")
    leaf.pair.table("public.z", "create table z (id int primary key, at timestamptz)")
    set_handler(leaf.leaf, "public.z", handler_attr("daily_field", ["part_field=at"]))
    begin(leaf, "daily_field", ["part_field=at"])
    attrs = leaf.leaf.value(
        "select table_attrs from londiste.table_info where table_name = 'public.t'"
    )
    more = f"{attrs}&copy_condition=v+%3C%3E+%27no%27"
    leaf.leaf.execute("select londiste.local_set_table_attrs(%s, 'public.t', %s)", [QUEUE, more])
    start(leaf, applied, "t", "z")
    leaf.root.execute("insert into z values (1, '2026-03-02 03:00+00')")
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a'), (2, '2026-03-02', 'no')")
    leaf.catch_up()
    assert list(spread(leaf.leaf, "z")) == ["z_2026_03_01"]
    assert list(spread(leaf.leaf)) == ["t_2026_03_01"]
    leaf.root.execute("update t set v = 'no' where id = 1; update t set v = 'yes' where id = 2")
    leaf.catch_up()
    assert spread(leaf.leaf) == {"t_2026_03_02": ['(2,"2026-03-02 00:00:00",yes)']}


# -- first copy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_first_copy_has_old_rows(quick_lab: Lab, ddl: str) -> None:
    """Their partitions stay to the end of the copy, and go when the next one is made."""
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(ddl)
    lab.root.execute(
        "insert into t select i, now() - i * interval '1 day', 'x' from generate_series(0, 9) i"
    )
    stored = handler_attr("daily_field", ["part_field=at", "retention_period=5 days"])
    lab.add("public.t", attrs="handler=" + quote_plus(stored))
    lab.start()
    lab.wait_ok()
    assert lab.leaf.value("select count(*) from t") == 10
    lab.write("insert into t values (100, now() + interval '1 day', 'next')")
    lab.settle()
    assert lab.leaf.value("select count(*) from t where id > 6 and id < 100") == 0
    assert lab.leaf.value("select count(*) from t where id < 5") == 5


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_first_copy_goes_to_partitions(
    quick_lab: Lab, ddl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_SMALL", 1 << 40)  # as for a large table
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
    for part in found:
        keys = "select count(*) from pg_index where indisprimary and indrelid = %s::regclass"
        assert lab.leaf.value(keys, [part]) == 1, part
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
                return f"insert into {{}} values ({key}, '{new[1]}', '{new[2]}')", [("I", new)]
            text = f"update {{}} set at = '{new[1]}', v = '{new[2]}' where id = {key}"
            return text, [("U", new)]
        if old is None or (kind == "rename" and step[2] in self.rows):
            return "", []
        del self.rows[key]
        if kind == "delete":
            return f"delete from {{}} where id = {key}", [("D", old)]
        self.rows[step[2]] = (step[2], *old[1:])
        text = f"update {{}} set id = {step[2]} where id = {key}"
        return text, [("D", old), ("I", self.rows[step[2]])]


def empty(leaf: Leaf, *names: str) -> None:
    """Begin an example: no rows, no partitions."""
    for name in names:
        leaf.root.execute(f"truncate {name}")
    leaf.catch_up()
    text = (
        "select c.oid::regclass::text as part from pg_inherits i"
        " join pg_class c on c.oid = i.inhrelid and c.relkind = 'r'"
    )
    for row in leaf.leaf.query(text):
        leaf.leaf.execute(f"drop table {row.part}")


def as_row(row: Row) -> str:
    return f'({row[0]},"{row[1]}",{row[2]})'


@pytest.mark.hypothesis
def test_histories_by_a_column(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"])
    begin(leaf, "daily_field", ["part_field=at"], DECLARED, "d")
    start(leaf, applied, "t", "d")

    @settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
    @given(_BATCHES)
    def check(batches: list[list[tuple[Any, ...]]]) -> None:
        empty(leaf, "t", "d")
        source = Source()
        for batch in batches:
            for step in batch:
                text, _ = source.apply(step)
                for name in ("t", "d") if text else ():
                    leaf.root.execute(text.format(name))
            leaf.catch_up()
            for name in ("t", "d"):
                expected: dict[str, list[str]] = {}
                for row in sorted(source.rows.values()):
                    day = row[1][:10].replace("-", "_")
                    expected.setdefault(f"{name}_{day}", []).append(as_row(row))
                assert spread(leaf.leaf, name) == expected

    check()


class History:
    """What partitions of a history hold: a row is in each period in which it changed."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, Row]] = {}

    def apply(self, events: Events, part: str) -> None:
        rows = self.parts.setdefault(part, {}) if events else {}
        for op, row in events:
            if op == "D":
                rows.pop(row[0], None)
            else:
                rows[row[0]] = row

    def spread(self) -> dict[str, list[str]]:
        return {
            part: sorted(as_row(row) for row in rows.values())
            for part, rows in self.parts.items()
            if rows
        }


@pytest.mark.hypothesis
def test_histories_by_time(quick_leaf: Callable[..., Leaf], applied: str) -> None:
    """By the time of events and of batches, which rows cross as they change."""
    leaf = quick_leaf()
    handlers = {"e": "hourly_event", "b": "hourly_batch"}
    for name, handler in handlers.items():
        begin(leaf, handler, name=name)
    start(leaf, applied, *handlers)

    @settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
    @given(_BATCHES)
    def check(batches: list[list[tuple[Any, ...]]]) -> None:
        empty(leaf, *handlers)
        source, by_event, by_batch, clock = Source(), History(), History(), 0
        for batch in batches:
            written: Events = []
            for step in batch:
                clock += 25
                text, events = source.apply(step)
                if not text:
                    continue
                moment = f"2026-03-01 {clock // 60:02}:{clock % 60:02}:00"
                written_at(leaf, moment, *(text.format(name) for name in handlers))
                by_event.apply(events, f"e_2026_03_01_{clock // 60:02}")
                written += events
            catch_up_at(leaf, f"2026-03-01 {clock // 60:02}:59:59")
            by_batch.apply(written, f"b_2026_03_01_{clock // 60:02}")
            assert spread(leaf.leaf, "e") == by_event.spread()
            assert spread(leaf.leaf, "b") == by_batch.spread()

    check()
