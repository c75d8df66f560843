"""The tables of eight parts, and how each comes into the database where they meet."""

from __future__ import annotations

OWNER = "t"
PARTS = tuple(f"s{n}" for n in range(1, 9))
#: Nobody can tell whose a row is: taken from all queues by one command (--merge-all).
WHOLE = ("t.bills", "t.lines", "t.notes")
#: Each part has its condition, so that one of them can be copied alone.
TOLD = ("t.stock",)
#: All parts have the same keys; a column that `full` alone has tells them (--part-column).
KEYED = ("t.clients",)
#: What the combined queue has of its parts.
COMBINED = ("t.bills", "t.notes")

TABLES = """
create table t.bills (
    id int primary key, part text not null, name text unique, v int not null default 0,
    at timestamptz);
create index bills_v on t.bills (v);
create table t.lines (
    bill int not null references t.bills on delete cascade, nr int, part text not null, what text,
    primary key (bill, nr));
create table t.notes (
    part text, id int, body jsonb, pad text, n numeric, primary key (part, id));
create index notes_n on t.notes (n) where n > 0;
create table t.stock (
    id int primary key, part text not null, amount int not null, note text);
create index stock_part on t.stock (part);
create table t.clients (id int primary key, name text unique, v int not null);
create table t.ran (script text not null, at timestamptz not null default clock_timestamp());
"""


#: What `full` has beside that.
WIDER = """
alter table t.clients add shard text not null, drop constraint clients_pkey,
    drop constraint clients_name_key;
alter table t.clients add primary key (shard, id);
create unique index clients_name_key on t.clients (name, shard);
"""


def condition(part: str) -> str:
    """Which rows of a table in `TOLD` are of a part."""
    return f"part = '{part}'"


def rows(part: str) -> str:
    """What a part has in the beginning. Keys of parts never meet."""
    own = PARTS.index(part)
    key = f"i * {len(PARTS)} + {own}"
    return f"""
insert into t.bills select {key}, '{part}', '{part} ' || i, i, now() from generate_series(1, 150) i;
insert into t.lines select {key}, n, '{part}', 'x' from generate_series(1, 60) i,
    generate_series(1, 3) n;
insert into t.notes select '{part}', i, '{{"a": 1}}', repeat('x', 50), i
    from generate_series(1, 200) i;
insert into t.clients select i, 'client ' || i, i from generate_series(1, 100) i;
insert into t.stock select {key}, '{part}', i, null from generate_series(1, 200) i;
"""
