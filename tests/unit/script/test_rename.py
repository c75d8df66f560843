"""Names are replaced where PostgreSQL's parser sees a relation, and nowhere else."""

from __future__ import annotations

import postgast
import pytest

from vedur.errors import UsageError
from vedur.script.on_node import rename_tables

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
            "update digoal_02.user_info1 as user_info set email = 'digoal_01.user_info' "
            "where userid in (select userid from digoal_02.user_info1 u where u.userid = 1)",
        ),
        (
            "delete from x using digoal_01.user_info where digoal_01.user_info.userid = x.id",
            "delete from x using digoal_02.user_info1 as user_info where user_info.userid = x.id",
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


#: With the tables of QUERIES: s.t is n.u, s.m is n.m, public.p is n.q.
QUERY_RENAMES = {"s.t": "n.u", "s.m": "n.m", "public.p": "n.q"}


@pytest.mark.parametrize(
    "script,want",
    [
        # a table keeps its name in the query
        ("update s.t set a = t.b", "update n.u as t set a = t.b"),
        ("update s.t set a = s.t.b returning t.*", "update n.u as t set a = t.b returning t.*"),
        ("update s.t as x set a = x.b", "update n.u as x set a = x.b"),
        ("update only p set a = p.b from s.t where t.i = p.i",
         "update only n.q as p set a = p.b from n.u as t where t.i = p.i"),
        ("delete from s.t using o.x where t.i = x.i returning s.t.*",
         "delete from n.u as t using o.x where t.i = x.i returning t.*"),
        ("insert into s.t values (1) on conflict (i) do update set a = t.a + excluded.a "
         "where s.t.a > 0 returning t.a",
         "insert into n.u as t values (1) on conflict (i) do update set a = t.a + excluded.a "
         "where t.a > 0 returning t.a"),
        ("insert into s.t select s.t.a from s.t", "insert into n.u as t select t.a from n.u as t"),
        ("merge into s.t using p on t.i = p.i when matched then update set a = p.a",
         "merge into n.u as t using n.q as p on t.i = p.i when matched then update set a = p.a"),
        ("create view v as select t, t.a, s.t.b, s.t.* from s.t left join o.x on x.i = t.i",
         "create view v as select t, t.a, t.b, t.* from n.u as t left join o.x on x.i = t.i"),
        ("select p.a from p for update of p", "select p.a from n.q as p for update of p"),
        ("select a from s.t tablesample system (1) where t.a > 0",
         "select a from n.u as t tablesample system (1) where t.a > 0"),
        ("select 1 from s.t where exists (select 1 from o.x where s.t.i = x.i and t.a = 1)",
         "select 1 from n.u as t where exists (select 1 from o.x where t.i = x.i and t.a = 1)"),
        ("select t.a from s.t union select s.t.a from s.t order by 1",
         "select t.a from n.u as t union select t.a from n.u as t order by 1"),
        ("create table o.n as select t.a from s.t", "create table o.n as select t.a from n.u as t"),
        ("copy (select t.a from s.t) to stdout", "copy (select t.a from n.u as t) to stdout"),
        ("create rule r as on insert to s.t do also update p set a = p.b where p.i = new.i",
         "create rule r as on insert to n.u do also update n.q as p set a = p.b where p.i = new.i"),
        # another schema only: no alias is needed
        ("select m.a, s.m.b from s.m", "select m.a, n.m.b from n.m"),
        # two tables of one name: neither can be an alias, and neither is called by it alone
        ("select s.t.a, o.t.a from s.t, o.t", "select n.u.a, o.t.a from n.u, o.t"),
        # a name of WITH is no table
        ("with p as (select a from p) select p.a from p",
         "with p as (select a from n.q as p) select p.a from p"),
        ("with recursive p as (select 1 as a union select p.a from p) update s.t set a = p.a "
         "from p",
         "with recursive p as (select 1 as a union select p.a from p) update n.u as t set a = p.a "
         "from p"),
        ("with p as (select 1) delete from p where p.a = 1",
         "with p as (select 1) delete from n.q as p where p.a = 1"),
        ("with x as (update s.t set a = t.b returning t.i) select x.i from x",
         "with x as (update n.u as t set a = t.b returning t.i) select x.i from x"),
        # a name of the query itself hides the table
        ("select t.a, (select t.a from o.x as t) from s.t",
         "select t.a, (select t.a from o.x as t) from n.u as t"),
        # where there are no aliases, the columns follow
        ("alter table s.t add check (t.a > 0 and s.t.b > 0)",
         "alter table n.u add check (u.a > 0 and n.u.b > 0)"),
        ("create index i on s.t ((t.a + 1)) where s.t.b > 0",
         "create index i on n.u ((u.a + 1)) where n.u.b > 0"),
        ("create policy y on s.t using (t.a = 1 and exists (select 1 from p where p.a = t.a))",
         "create policy y on n.u using (u.a = 1 and exists (select 1 from n.q as p where "
         "p.a = u.a))"),
        ("copy s.t from stdin where t.a > 0", "copy n.u from stdin where u.a > 0"),
        # names in other places
        ("select 's.t'::regclass, null::s.t", "select '\"n\".\"u\"'::regclass, null::n.u"),
        ("create function f(x s.t.a%type) returns setof s.t language sql as 'select 1'",
         "create function f(x n.u.a%type) returns setof n.u language sql as 'select 1'"),
    ],
)  # fmt: skip
def test_columns_follow_their_tables(script: str, want: str) -> None:
    got = rename_tables(script, QUERY_RENAMES)
    assert same(got, want), got


def test_a_column_that_would_mean_another_table_is_refused() -> None:
    script = "select 1 from s.t where exists (select 1 from o.x as t where s.t.i = t.i)"
    with pytest.raises(UsageError, match=r'"s.t" cannot be renamed .* give one of them an alias'):
        rename_tables(script, QUERY_RENAMES)


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
