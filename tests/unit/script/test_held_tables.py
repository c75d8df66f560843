"""What is locked against writers before each statement of a script."""

from __future__ import annotations

import pytest

from vedur.names import QualifiedName
from vedur.script.held_tables import relations_to_hold


def held(*statements: str) -> list[set[str]]:
    return [
        {f"{schema}.{name}" if schema else name for schema, name in names}
        for names in relations_to_hold(statements)
    ]


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("update public.orders set v = 1 where status = 'open'", {"public.orders"}),
        ("update a set x = b.x from s.b where a.id = b.id", {"a", "s.b"}),
        ("delete from a using b where a.id = b.id", {"a", "b"}),
        ("insert into a select * from b where id not in (select id from a)", {"a", "b"}),
        ("insert into a select * from b", {"b"}),
        ("insert into a values (1)", set()),
        ("insert into a values (1) on conflict do nothing", {"a"}),
        ("with gone as (delete from a returning *) insert into b table gone", {"a", "gone"}),
        ("merge into a using b on a.id = b.id when matched then delete", {"a", "b"}),
        ("create table c as select * from a", {"a", "c"}),
        ("copy (select * from a) to stdout", {"a"}),
        ("refresh materialized view m", {"m"}),
        ("select f(id) from a", {"a"}),
        ("alter table a add x int", set()),
        ("truncate a", set()),
        ("drop table a", set()),
        ("create index on a (id)", set()),
        ("create view v as select * from a", set()),
        ("create function f() returns int language sql as 'select 1 from a'", set()),
        ("lock table a in access exclusive mode", set()),
        ("grant select on a to public; comment on table a is 'x'", set()),
        ("neither SQL nor prose", set()),
    ],
)
def test_rows_are_held_and_definitions_lock_themselves(statement: str, names: set[str]) -> None:
    assert held(statement) == [names]


def test_the_words_of_a_block_may_be_tables() -> None:
    (names,) = held("do $$ begin update Public.Orders set v = 1; end $$")
    assert {"Orders", "orders", "Public", "public"} <= names


def test_all_is_locked_before_the_first_statement() -> None:
    assert held("update b set v = 1", "update a set v = 1") == [{"a", "b"}, set()]


def test_a_table_that_was_locked_harder_waits_for_that() -> None:
    plan = held(
        "alter table public.orders add cname text",
        "update orders o set cname = c.name from customers c where c.id = o.c",
        "drop table public.old",
        "delete from old",
    )
    assert plan == [{"customers"}, {"orders", "customers"}, set(), {"old"}]


def test_tables_of_the_header_are_locked() -> None:
    header = [QualifiedName("public", "t")]
    plan = relations_to_hold(["select f()", "select g()"], header)
    assert plan == (frozenset({("public", "t")}), frozenset())
    assert relations_to_hold([], header) == ()
