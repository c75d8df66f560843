"""Which tables a script may touch: every doubt is a yes."""

from __future__ import annotations

import pytest

from vedur.names import QualifiedName
from vedur.script.touched import read_touched

T = [QualifiedName("public", "t")]


@pytest.mark.parametrize(
    "statement",
    [
        "create table u (id int primary key default nextval('s'), at timestamptz default now())",
        "alter table u add c text default lower('X')",
        "alter table other.t add c text",
        "create index on u (lower(a))",
        "drop table u, other.v",
        "alter table u rename to w",
        "alter table u set schema other",
        "comment on table t is 'x'",
        "grant select on t to public",
        "create view v as select * from t",
        "create function f() returns int language sql as 'delete from t returning 1'",
    ],
)
def test_a_statement_about_something_else(statement: str) -> None:
    assert not read_touched([statement]).reaches(T)


@pytest.mark.parametrize(
    "statement",
    [
        "alter table t add c text",
        "alter table public.t rename a to b",
        "alter table t set schema other",
        "create index on t (a)",
        "drop table u, t",
        "drop table public.t",
        "drop trigger x on t",
        "create table p partition of t for values in (1)",
        "alter table u attach partition public.t for values in (1)",
        "create table u (id int references t)",
    ],
)
def test_a_statement_that_names_the_table(statement: str) -> None:
    assert read_touched(["comment on table u is 'x'", statement]).reaches(T)


@pytest.mark.parametrize(
    "statement",
    [
        "update u set n = 1",
        "insert into u values (1)",
        "delete from u",
        "truncate u",
        "with x as (delete from t returning *) select * from x",
        "select f()",
        "do $$ begin end $$",
        "call p()",
        "create table u as select f()",
        "drop table u cascade",
        "drop type e cascade",
        "alter type e rename value 'a' to 'b'",
        "alter type e rename to f",
        "alter domain d set schema other",
        "alter table u add c int default f()",
        "alter table u add c int default other.now()",
        "alter table u alter c type int using g(c)",
        "create extension x",
        "refresh materialized view v",
        "create schema s create table u (id int)",
        "this is newer than the parser",
    ],
)
def test_a_statement_of_which_nobody_can_say(statement: str) -> None:
    assert read_touched([statement]).reaches(T)
