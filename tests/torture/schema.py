"""The tables of the campaign: keys of all kinds, foreign keys, all types, a filter, a rename."""

from __future__ import annotations

OWNER = "t"
#: Tables that have the same name on both sides; `part` is apart.
NAMES = ("acct", "slot", "kv", "orders", "lines", "hist", "types", "big", "ddl", "gone", "mark")
PART_HERE = "part_here"
#: change-filter goes from one to the other; add-table begins with the first.
PART_CONDITIONS = ("grp < 5 and note is distinct from 'hidden'", "grp between 3 and 7")
SEQUENCES = ("t.hist_id_seq", "t.free_seq")

TABLES = """
create type t.mood as enum ('sad', 'ok', 'happy');
create domain t.small as int check (value between -1000 and 1000);
create type t.pair as (a int, b text);
create table t.acct (
    id int primary key, name text unique, bal numeric not null default 0, note text);
create table t.slot (id int primary key, pos int, unique (pos) deferrable initially deferred);
create table t.kv (k1 int, k2 text, v jsonb, n int default 0, primary key (k1, k2));
create index kv_n on t.kv (n);
create table t.orders (id int primary key, state text not null, placed timestamptz);
create table t.lines (
    id int, ord int not null references t.orders on delete cascade, qty int,
    what text, primary key (ord, id));
create table t.hist (id bigserial primary key, acct int, amount numeric(12,2), at timestamptz);
create table t.types (
    id int primary key, b bool, i2 int2, i8 int8, num numeric, f4 float4, f8 float8, c char(5),
    vc varchar(30), tx text, by bytea, d date, tm time, ttz timetz, ts timestamp, tstz timestamptz,
    iv interval, u uuid, j json, jb jsonb, ia int[], ta text[], ir int4range, mr int4multirange,
    ip inet, mac macaddr, bits bit varying, xml text, m t.mood, dom t.small, pr t.pair,
    pt point, gen int generated always as (i2 * 2) stored);
create table t.big (id int primary key, v int, pad text);
create table t.ddl (id int primary key, note text);
create table t."gone" (id int primary key, v text);
create table t.mark (id int primary key, n int not null);
create sequence t.free_seq;
create table t.share (id int, shop int, v text, primary key (id, shop));
"""
ROOT_ONLY = """
create table t.part (id int primary key, grp int not null, note text, v int);
insert into t.acct select i, 'n' || i, i, null from generate_series(1, 200) i;
insert into t.slot select i, i from generate_series(1, 30) i;
insert into t.orders select i, 'new', now() from generate_series(1, 50) i;
insert into t.lines select i, o, i, 'x' from generate_series(1, 50) o, generate_series(1, 3) i;
insert into t.big select i, 0, repeat('x', 40) from generate_series(1, 3000) i;
insert into t.part select i, i % 10, null, i from generate_series(1, 200) i;
insert into t.mark values (1, 0);
"""
#: The branch has the whole table, the leaf a part of it.
BRANCH_ONLY = "create table t.part (id int primary key, grp int not null, note text, v int);"
LEAF_ONLY = "create table t.part_here (id int primary key, grp int not null, note text, v int);"

#: A row of t.types from a few random numbers; %(id)s is its key.
TYPES_ROW = """
select %(id)s, r < 0.5, (r * 1000)::int, (r * 1e15)::int8,
    (array['NaN', 'Infinity', '0.000', '-0.10', '12345678901234567890.123']::numeric[])[k],
    (array['NaN', '-Infinity', '0.1', '1e20', '-0']::float4[])[k], r / 3, chr(65 + k),
    repeat('ü', k),
    (array['', 'null', E'tab\\there', E'back\\\\slash\\nline', '日本 ''quote'' "x"'])[k],
    decode(md5(r::text), 'hex'), date '2020-01-01' + k, time '12:00' + k * interval '1 second',
    timetz '12:00+02', (array['infinity', '-infinity', '2024-02-29 12:00:00.123456',
    '0044-03-15 BC', '2000-01-01']::timestamp[])[k], now(), make_interval(months => k, secs => r),
    md5(r::text)::uuid,
    '{"a" : 1,  "a": null}', jsonb_build_object('k', r, 'z', null), array[k, null, -k],
    array['', null, 'a,b', '{}', '"'], int4range(k, 10), int4multirange(int4range(0, k)),
    ('10.0.0.' || k)::inet, '08:00:2b:01:02:03'::macaddr, k::bit(4)::varbit, '<a/>',
    (array['sad', 'ok', 'happy', null, 'ok']::t.mood[])[k], k - 3, row(k, null)::t.pair, point(r, k)
from (select random() as r, 1 + floor(random() * 5)::int as k) x
"""
