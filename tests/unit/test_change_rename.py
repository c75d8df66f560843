"""Names are replaced where PostgreSQL's parser sees a relation, and nowhere else."""

from __future__ import annotations

import postgast
import pytest

from vedur.change.rename import rename_tables
from vedur.errors import UsageError

RENAMES = {
    "digoal_01.user_info": "digoal_02.user_info1",
    "public.t": 'Odd Schema.T"x',
    "s.seq": "z.seq2",
}


def same(got: str, want: str) -> bool:
    """Equal as PostgreSQL reads them."""
    return bool(postgast.deparse(postgast.parse(got)) == postgast.deparse(postgast.parse(want)))


@pytest.mark.parametrize(
    "script,want",
    [
        (
            "alter table digoal_01.user_info add column c1 int",
            "alter table digoal_02.user_info1 add column c1 int",
        ),
        ("alter table only t add c int", 'alter table only "Odd Schema"."T""x" add c int'),
        ("drop table digoal_01.user_info, other.x", "drop table digoal_02.user_info1, other.x"),
        ("drop table if exists t", 'drop table if exists "Odd Schema"."T""x"'),
        (
            "create index i on digoal_01.user_info (userid) where userid > 1",
            "create index i on digoal_02.user_info1 (userid) where userid > 1",
        ),
        (
            "alter table a.b add foreign key (x) references digoal_01.user_info (userid)",
            "alter table a.b add foreign key (x) references digoal_02.user_info1 (userid)",
        ),
        (
            "comment on column digoal_01.user_info.email is 'digoal_01.user_info'",
            "comment on column digoal_02.user_info1.email is 'digoal_01.user_info'",
        ),
        (
            "comment on table digoal_01.user_info is 'x'",
            "comment on table digoal_02.user_info1 is 'x'",
        ),
        (
            "update digoal_01.user_info set email = 'digoal_01.user_info' where userid in "
            "(select userid from digoal_01.user_info u where u.userid = 1)",
            "update digoal_02.user_info1 set email = 'digoal_01.user_info' where userid in "
            "(select userid from digoal_02.user_info1 u where u.userid = 1)",
        ),
        (
            "delete from x using digoal_01.user_info where digoal_01.user_info.userid = x.id",
            "delete from x using digoal_02.user_info1 where digoal_02.user_info1.userid = x.id",
        ),
        (
            "grant select on digoal_01.user_info to someone",
            "grant select on digoal_02.user_info1 to someone",
        ),
        ("truncate digoal_01.user_info", "truncate digoal_02.user_info1"),
        (
            "create trigger g before insert on digoal_01.user_info execute function f()",
            "create trigger g before insert on digoal_02.user_info1 execute function f()",
        ),
        (
            "drop trigger g on digoal_01.user_info",
            "drop trigger g on digoal_02.user_info1",
        ),
        (
            "alter table digoal_01.user_info alter c set default nextval('s.seq')",
            'alter table digoal_02.user_info1 alter c set default nextval(\'"z"."seq2"\')',
        ),
        (
            "alter table digoal_01.user_info rename column a to b",
            "alter table digoal_02.user_info1 rename column a to b",
        ),
        (
            "alter sequence s.seq owned by digoal_01.user_info.userid",
            "alter sequence z.seq2 owned by digoal_02.user_info1.userid",
        ),
    ],
)
def test_references_follow(script: str, want: str) -> None:
    got = rename_tables(script, RENAMES)
    assert same(got, want), got


@pytest.mark.parametrize(
    "script",
    [
        "select 1;  -- digoal_01.user_info\n",
        "insert into a.b values ('digoal_01.user_info');",
        "alter table digoal_01.user_info_old add c int",
        "select user_info.x from a.user_info",
        "",
    ],
)
def test_everything_else_keeps_its_text(script: str) -> None:
    assert rename_tables(script, RENAMES) == script


def test_only_touched_statements_are_written_anew() -> None:
    script = "create  table a.b(x   int); alter table digoal_01.user_info add c text default 'ü;'"
    got = rename_tables(script, RENAMES)
    assert got.startswith("create  table a.b(x   int);\n")
    assert same(got, script.replace("digoal_01.user_info", "digoal_02.user_info1"))


def test_no_renames_no_parsing() -> None:
    assert rename_tables("this is not SQL", {}) == "this is not SQL"
    assert rename_tables("this is not SQL", {"a.b": "a.b"}) == "this is not SQL"


def test_garbage_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"script cannot be parsed: .*syntax error"):
        rename_tables("alter tabel x", RENAMES)
