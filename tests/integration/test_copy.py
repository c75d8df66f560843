"""First copy end to end: two servers, Spark, a running worker; contents compared in full."""

# ruff: noqa: E501
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.labs.first_copy import DEADLINE, Lab
from vedur import db as vdb
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


def both(lab: Lab, ddl: str) -> None:
    """Run a script on both sides."""
    lab.root.execute(ddl)
    lab.leaf.execute(ddl)


@pytest.mark.draw("copies")
def test_a_table_in_many_slices_is_copied_under_concurrent_writes(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, a text, n numeric, at timestamptz)")
    lab.root.execute(
        "insert into t select g, repeat('x', 40) || g, g / 7.0, now() from "
        "generate_series(1, 60000) g"
    )
    lab.add("public.t")
    stop = threading.Event()

    def write() -> None:
        with vdb.connect(lab.root.connstr, autocommit=True) as db:
            n = 100000
            while not stop.wait(0.002):
                n += 1
                db.execute("insert into t values (%s, 'new', 1, now())", [n])
                db.execute("update t set a = a || '+', n = n + 1 where id = %s", [n % 60000])
                db.execute("delete from t where id = %s", [(n * 7) % 60000])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        lab.start()
        lab.wait_ok()
    finally:
        stop.set()
        writer.join()
    lab.settle()
    lab.same("t")
    assert lab.root.value("select count(*) from t") > 50000
    progress = lab.leaf.one("select * from vedur.copy_progress where table_name = 'public.t'")
    assert progress.slices > 3
    assert progress.slices_done == progress.slices
    assert progress.step == 10
    assert lab.debris() == []


ODD = """
create schema "Odd Schema";
create table parent (id int primary key);
create table "Odd Schema"."T a.b" (
    "Id" bigint not null,
    "select" text,
    n int,
    r int4range,
    p int,
    constraint "my pk" primary key ("Id") with (fillfactor = 77),
    constraint positive check (n > -5),
    constraint no_overlap exclude using gist (r with &&) where (r is not null)
);
alter table "Odd Schema"."T a.b" add constraint def_uq unique (n, "Id") deferrable initially deferred;
alter table "Odd Schema"."T a.b" add constraint to_parent foreign key (p) references parent;
create unique index "Uq; -- select" on "Odd Schema"."T a.b" ("select" text_pattern_ops)
    where n > 0;
create index expr on "Odd Schema"."T a.b" (lower("select"), (n + 1)) include (n);
create index br on "Odd Schema"."T a.b" using brin (n);
alter index "Odd Schema".expr alter column 2 set statistics 500;
comment on index "Odd Schema".br is 'it''s \\ a "comment";
of two lines';
comment on constraint "my pk" on "Odd Schema"."T a.b" is 'key';
alter table "Odd Schema"."T a.b" cluster on "my pk";
alter table "Odd Schema"."T a.b" replica identity using index "my pk";
create table child (id int primary key, t bigint references "Odd Schema"."T a.b",
    p int references parent on delete cascade);
"""


def test_indexes_and_keys_are_the_same_afterwards(lab: Lab) -> None:
    lab.root.execute(ODD)
    lab.leaf.execute(ODD)
    lab.root.execute("insert into parent select generate_series(1, 50)")
    # what is not replicated keeps its rows, and its foreign keys come back
    lab.leaf.execute("insert into parent select generate_series(1, 50)")
    lab.root.execute(
        """insert into "Odd Schema"."T a.b" select g, 'x' || g, g, int4range(g, g + 1), g % 50 + 1
        from generate_series(1, 3000) g"""
    )
    lab.root.execute("insert into child select g, g, g % 50 + 1 from generate_series(1, 1000) g")
    tables = ('"Odd Schema"."T a.b"', "child")
    before = lab.structure(*tables)
    stats = "select attnum, attstattarget from pg_attribute where attrelid = '\"Odd Schema\".expr'::regclass"
    stats_before = lab.leaf.query(stats)
    lab.add("Odd Schema.T a.b", "public.child")
    lab.start()
    lab.wait_ok()
    lab.wait_until(lambda: lab.leaf.value("select count(*) from londiste.pending_fkeys") == 0)
    assert lab.structure(*tables) == before
    assert lab.leaf.query(stats) == stats_before
    lab.same('"Odd Schema"."T a.b"')
    lab.same("child")
    assert lab.debris() == []


TYPES = """
create type mood as enum ('sad', 'it''s ok', 'happy');
create type pair as (a int, b text);
create domain posint as int check (value > 0);
create table types (
    id int primary key,
    i2 int2, i8 int8, n numeric, n2 numeric(12, 3), f4 float4, f8 float8, m money,
    t text, vc varchar(20), c char(5), ch "char", nm name, by bytea,
    ts timestamp, tz timestamptz, d date, tm time, tmz timetz, iv interval, b bool,
    u uuid, ine inet, ci cidr, ma macaddr, ma8 macaddr8, bi bit(3), vb varbit,
    pt point, ln line, ls lseg, bx box, pa path, pg polygon, cr circle,
    j json, jb jsonb, tv tsvector, tq tsquery, ia int[], ta text[], na numeric[],
    ir int4range, nr numrange, tr tstzrange, im int4multirange, lsn pg_lsn, o oid, rc regclass,
    e mood, ea mood[], p pair, dm posint
);
"""

VALUES = """
insert into types values
(1, 1, 9223372036854775807, 'NaN', -1.5, 'infinity', '-infinity', 12.34, e'tab\\t nl\\n \\\\ \\\\. é 😀', 'x', 'ab',
 'z', 'nm', '\\x00ff5c0a', 'infinity', '-infinity', '0044-03-15 BC', '24:00', '12:00+05:30', '1 mon -3 days 04:05:06.789', true,
 gen_random_uuid(), '10.1.2.3/8', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', b'101', b'10101',
 '(1.1,2)', '{1,2,3}', '((1,1),(2,2))', '((1,1),(2,2))', '((1,1),(2,2),(3,3))', '((1,1),(2,2),(3,3))', '<(1,1),5>',
 '{"a" :  1, "a":2}', '{"a": [1, null, "x"]}', 'a fat cat', 'a & b', '{1,NULL,3}', '{"a,b",NULL,"NULL",""}', '{1e400,NaN}',
 '[1,5)', '(,1.5]', '[2020-01-01,infinity)', '{[1,2),[5,7)}', '16/B374D848', 4294967295, 'pg_class',
 'it''s ok', '{sad,happy}', row(1, 'a,"b'), 5),
(2, null, null, 1e-400, 0, 'NaN', 1e-300, -1, '', '', '', '', '', '', null, null, null, null, null, null, false,
 null, '::1', null, null, null, null, '', null, null, null, null, null, null, null, 'null', 'null', '', '', '{}', '{}', '{}',
 'empty', 'empty', 'empty', '{}', '0/0', 0, null, null, '{}', null, null),
(3, null, null, repeat('9', 500)::numeric, null, 0, '-0', 0, 'null', '\\N', null, null, null, null, 'epoch', 'epoch', 'epoch', null, null, '-178000000 years', null,
 null, null, null, null, null, null, null, null, null, null, null, null, null, null, '"x"', '""', null, null, '[0:1]={5,6}', '{{a,b},{c,d}}', null,
 null, null, null, null, null, null, null, null, null, row(null, null), null)
"""


def test_all_types_arrive_as_they_are(lab: Lab) -> None:
    lab.root.execute(TYPES)
    lab.leaf.execute(TYPES)
    lab.root.execute(VALUES)
    both(
        lab,
        "create table plain as select * from types; alter table plain add primary key (id), "
        "drop rc, drop e, drop ea, drop p, drop dm",
    )
    lab.add("public.types", "public.plain")
    lab.start()
    lab.wait_ok()
    lab.same("types")
    lab.same("plain")
    assert lab.root.value("select count(*) from plain") == 3


def test_other_types_other_columns_generated_and_identity(lab: Lab) -> None:
    lab.root.execute(
        """create table t (id int primary key, v varchar(10), gone text, g int generated always as
        (id * 2) stored, i int generated always as identity, "order" text);
        create table nothing (id int primary key)"""
    )
    lab.leaf.execute(
        """create table t (extra text default 'here', "order" text, i int generated always as
        identity, id bigint primary key, g int generated always as (id * 3) stored, v text);
        create table nothing (id int primary key)"""
    )
    lab.root.execute(
        """insert into t (id, v, gone, "order") select n, 'v' || n, 'x', 'o'
        from generate_series(1, 5000) n"""
    )
    lab.add("public.t", "public.nothing")
    lab.start()
    lab.wait_ok()
    assert lab.root.query('select id, v, i, "order", 3 * id as g from t order by 1') == (
        lab.leaf.query('select id, v, i, "order", g from t order by 1')
    )
    assert lab.leaf.value("select count(*) from t where extra = 'here'") == 5000


def test_renamed_and_filtered(lab: Lab) -> None:
    lab.root.execute("create table t (id int primary key, a text)")
    lab.leaf.execute("create schema other; create table other.t1 (id int primary key, a text)")
    lab.root.execute("insert into t select g, 'x' || g from generate_series(1, 3000) g")
    lab.add(
        "public.t", dest="other.t1", attrs="copy_condition=id%3c1000+and+a+like+%27x%25%27+--+rest"
    )
    lab.start()
    lab.wait_ok()
    lab.same("t", "other.t1", "id < 1000")


def test_partitioned_on_both_sides(lab: Lab) -> None:
    lab.root.execute(
        """create table t (id int, k int, a text, primary key (id, k)) partition by range (k);
        create table t1 partition of t for values from (0) to (10);
        create table t2 partition of t for values from (10) to (20) partition by list (k);
        create table t2a partition of t2 default"""
    )
    lab.leaf.execute(
        """create table t (k int, id int, a text, primary key (id, k)) partition by hash (id);
        create table th0 partition of t for values with (modulus 2, remainder 0);
        create table th1 partition of t for values with (modulus 2, remainder 1);
        create index on t (a)"""
    )
    lab.root.execute("insert into t select g, g % 20, 'x' || g from generate_series(1, 4000) g")
    before = lab.structure("t", "th0", "th1")
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    same = "select id, k, a from t order by id, k"
    assert lab.root.query(same) == lab.leaf.query(same)
    assert lab.structure("t", "th0", "th1") == before
    lab.root.execute(
        """insert into t select g, g % 20, 'new' from generate_series(5001, 5100) g;
        update t set a = 'changed' where id % 5 = 0;
        update t set k = (k + 10) % 20 where id % 7 = 0;
        delete from t where id % 3 = 0"""
    )
    lab.settle()
    assert lab.root.query(same) == lab.leaf.query(same)
    assert lab.root.value("select count(*) from t where a = 'changed'") > 100


def test_skip_truncate_of_a_partitioned_table_copies_its_partitions(lab: Lab) -> None:
    both(
        lab,
        """create table t (id int primary key, a text) partition by range (id);
        create table t1 partition of t for values from (minvalue) to (1000);
        create table t2 partition of t for values from (1000) to (maxvalue)""",
    )
    lab.root.execute("insert into t select g, 'x' || g from generate_series(1, 2000) g")
    lab.leaf.execute("insert into t values (-1, 'kept')")
    lab.add("public.t", args=("skip_truncate",))
    lab.start()
    lab.wait_ok()
    assert lab.leaf.value("select count(*) from t") == 2001
    lab.root.execute("update t set a = 'changed' where id % 100 = 0; delete from t where id = 5")
    lab.settle()
    assert lab.leaf.value("select a from t where id = -1") == "kept"
    same = "select * from t where id > 0 order by id"
    assert lab.root.query(same) == lab.leaf.query(same)


def test_skip_truncate_keeps_rows_and_resync_starts_again(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, a text)")
    lab.root.execute("insert into t select g, 'x' from generate_series(1, 2000) g")
    lab.leaf.execute("insert into t values (-1, 'kept')")
    lab.add("public.t", args=("skip_truncate",))
    lab.start()
    lab.wait_ok()
    assert lab.leaf.value("select count(*) from t") == 2001
    lab.leaf.execute("update londiste.table_info set table_attrs = null")
    lab.leaf.execute("set session_replication_role = replica; delete from t where id > 100")
    lab.leaf.execute("select * from londiste.local_set_table_state('q', 'public.t', null, null)")
    lab.wait_until(lambda: lab.leaf.value("select count(*) from t where id = 2000") == 1)
    lab.wait_ok()
    lab.same("t")


@pytest.mark.draw("copies")
def test_tables_added_together_come_from_one_snapshot_one_after_the_other(lab: Lab) -> None:
    lab.slice_bytes = 1 << 15  # of 80 kB each, these are too large to be loaded together
    names = [f"t{i}" for i in range(4)]
    for name in names:
        both(lab, f"create table {name} (id int primary key, a text)")
        lab.root.execute(f"insert into {name} select g, 'x' from generate_series(1, 2000) g")
    lab.add(*(f"public.{n}" for n in names))
    seen: list[dict[str, str | None]] = []
    snapshots: set[str] = set()

    def hook(table: str, step: Any) -> None:
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            rows = db.query("select table_name, merge_state from londiste.table_info")
            seen.append({r.table_name: r.merge_state for r in rows})
            snapshots.update(
                r.snapshot
                for r in db.query("select snapshot from vedur.copy_progress")
                if r.snapshot
            )

    lab.start(hook)
    lab.wait_ok()
    assert len(snapshots) == 1
    assert max(list(s.values()).count("in-copy") for s in seen) == 1
    for name in names:
        lab.same(name)


@pytest.mark.draw("copies")
def test_other_tables_are_replicated_while_one_is_copied(lab: Lab) -> None:
    both(lab, "create table big (id int primary key, a text)")
    both(lab, "create table other (id int primary key, a text)")
    lab.root.execute("insert into big select g, repeat('x', 200) from generate_series(1, 20000) g")
    lab.add("public.other")
    lab.start()
    lab.wait_ok()
    lab.stop()
    waiting, go_on = threading.Event(), threading.Event()

    def hook(table: str, step: Any) -> None:
        if table == "public.big" and step == 7:
            waiting.set()
            assert go_on.wait(120)

    lab.add("public.big")
    lab.start(hook)
    assert waiting.wait(120)
    lab.root.execute("insert into other values (1, 'arrives during the copy')")
    lab.wait_until(lambda: lab.leaf.value("select count(*) from other") == 1)
    assert lab.states()["public.big"] == "in-copy"
    lab.root.execute("update big set a = 'changed meanwhile' where id % 2 = 0")
    go_on.set()
    lab.wait_ok()
    lab.settle()
    lab.same("big")
    lab.same("other")


def test_remove_table_during_a_copy(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, a text); create index on t (a)")
    lab.root.execute(
        "insert into t select g, repeat('x', 200) || g from generate_series(1, 20000) g"
    )
    before = lab.structure("t")
    lab.add("public.t")
    waiting, go_on = threading.Event(), threading.Event()

    def hook(table: str, step: Any) -> None:
        if step == 6:
            waiting.set()
            assert go_on.wait(120)

    lab.start(hook)
    assert waiting.wait(120)
    lab.leaf.execute("select * from londiste.local_remove_table('q', 'public.t')")
    go_on.set()
    lab.wait_until(lambda: lab.copying is not None and not lab.copies())
    lab.wait_until(lambda: lab.debris() == [])
    assert lab.structure("t") == before
    assert lab.leaf.value("select count(*) from t") == 0


@pytest.mark.draw("copies")
def test_more_spark_slots_than_connections(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, a text)")
    lab.root.execute("insert into t select g, repeat('x', 100) from generate_series(1, 30000) g")
    lab.max_connections = 1
    lab.slice_bytes = 256 << 10
    most = []

    # active: a connection that its task has closed is shown until the server has seen it
    text = (
        "select count(*) from pg_stat_activity where application_name like 'vedur copy % q %'"
        " and datname = current_database() and state = 'active'"
    )

    def hook(table: str, step: Any) -> None:
        if step == 6:
            db = vdb.connect(lab.root.connstr, autocommit=True)
            most.append(db.value(text))  # at least once, however soon the load ends
            threading.Thread(target=watch, args=[db], daemon=True).start()

    def watch(db: vdb.Database) -> None:
        with db:
            while lab.states().get("public.t") == "in-copy":
                most.append(db.value(text))

    lab.add("public.t")
    lab.start(hook)
    lab.wait_ok()
    lab.same("t")
    assert most
    assert max(most) <= 1
    assert lab.leaf.value("select slices from vedur.copy_progress") > 5


def test_more_copies_at_a_time_take_effect_among_tables_of_a_group(lab: Lab) -> None:
    """`parallel_copies` is raised, by -r, while the first of three tables is being loaded."""
    lab.slice_bytes = 4 << 10  # less than a page: no table is loaded together with others
    names = ("public.a", "public.b", "public.c")
    for db in (lab.root, lab.leaf):
        db.execute("".join(f"create table {n} (id int primary key);" for n in names))
    for name in names:
        lab.root.execute(f"insert into {name} select generate_series(1, 100)")
    loading: set[str] = set()
    go_on = threading.Event()

    def hook(table: str, step: Step) -> None:
        if step is Step.LOAD:
            loading.add(table)
            go_on.wait(DEADLINE)

    lab.add(*names)
    lab.start(hook)
    try:
        lab.wait_until(lambda: len(loading) == 1)
        copying = lab.copying
        assert copying is not None
        setup = replace(copying.setup, parallel_copies=2)
        copying.reconfigure(setup, copying.loader, copying.make_applier)
        lab.wait_until(lambda: len(loading) == 2, 60)
        assert sorted(lab.states().values(), key=str) == [None, "in-copy", "in-copy"]
        copying.reconfigure(replace(setup, parallel_copies=1), copying.loader, copying.make_applier)
    finally:
        go_on.set()
    lab.wait_ok()
    assert copying._groups.lanes == 0
    for name in names:
        lab.same(name)
