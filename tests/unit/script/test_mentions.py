"""What a script takes for granted, and what it makes itself."""

from __future__ import annotations

import pytest

from vedur.script.mentions import read_mentions


@pytest.mark.parametrize(
    ("script", "needed"),
    [
        ("alter table s.t add c int; alter index s.i rename to j", ["s.t", "s.i"]),
        ("drop index s.i, j; comment on table s.t is 'x.y'", ["s.i", "s.t"]),
        ("drop table if exists s.t; alter table if exists s.u add c int", []),
        ("create table s.n (i serial primary key); insert into s.n select i from o.x", ["o.x"]),
        ("create table s.n (i serial); grant select on sequence s.n_i_seq to public", []),
        ("create schema o; alter table o.t add c int", []),
        ("create index i on s.t (a); drop index s.i", ["s.t"]),
        ("alter table s.t rename to u; update s.u set a = 1", ["s.t"]),
        ("alter table s.t set schema o; update o.t set a = 1", ["s.t"]),
        ("with x as (select 1) select * from x, t, s.t", ["s.t"]),
        ("create table pg_temp.x (i int); select * from pg_temp.x", []),
        ("this is not SQL", []),
    ],
)
def test_needed_and_not_made(script: str, needed: list[str]) -> None:
    found = read_mentions(script.split("; "))
    assert [str(n) for n in found.needed if not found.comes(n)] == needed
