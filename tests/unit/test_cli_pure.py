"""Decisions that need no server: names and globs, attributes, scripts, structure, DDL."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedur.catalog import ddl
from vedur.catalog.attrs import decode_attrs, encode_attrs
from vedur.catalog.script import parse_attrs, parse_script
from vedur.catalog.structure import Column, Constraint, Definition, Structure, differences
from vedur.errors import UsageError
from vedur.names import QualifiedName
from vedur.ops.add_table import AddTable
from vedur.ops.choose import choose


@given(st.dictionaries(st.text(min_size=1), st.none() | st.text()))
def test_attributes_come_back(attrs: dict[str, str | None]) -> None:
    assert decode_attrs(encode_attrs(attrs)) == attrs


def test_choose_names_and_globs() -> None:
    names = ["public.a", "public.b", "s.a", "s.ab"]
    assert choose(["s.*"], names) == ["s.a", "s.ab"]
    assert choose(["?"], names) == ["public.a", "public.b"]
    assert choose(["s.a", "s.*", "a"], names) == ["s.a", "s.ab", "public.a"]
    assert choose([], names, everything=True) == names
    assert choose(["zz*"], names) == []


def test_choose_reads_names_as_sql_writes_them() -> None:
    names = ["Weird Schema.Order", "Weird Schema.x*", "Weird Schema.xy", 'public."q"', "public.q"]
    assert choose(['"Weird Schema"."Order"'], names) == ["Weird Schema.Order"]
    assert choose(["Weird Schema.Order"], names) == ["Weird Schema.Order"]
    assert choose(['"Weird Schema".x*'], names) == ["Weird Schema.x*", "Weird Schema.xy"]
    assert choose(['"Weird Schema"."x*"'], names) == ["Weird Schema.x*"]
    assert choose(['"""q"""'], names) == ['public."q"']
    assert choose(['"q"'], ['public."q"']) == ['public."q"']
    with pytest.raises(UsageError, match="can mean"):
        choose(['"q"'], names)


def test_choose_says_what_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(UsageError, match="Cannot proceed"):
        choose(["zz"], ["public.a"])
    assert choose(["zz", "a"], ["public.a"], skip_missing=True) == ["public.a"]
    assert choose(["b"], ["public.a"], done={"public.b"}) == []
    assert caplog.messages == [
        "public.zz not available",
        "public.zz not available",
        "public.b already processed",
    ]


@pytest.mark.parametrize(
    "wish, message",
    [
        (AddTable(tables=()), "add-table needs TABLE"),
        (AddTable(tables=("a", "b"), dest_table="c"), "only for single table"),
        (AddTable(tables=("a",), handler_args=("x=1",)), "--handler-arg needs --handler"),
        (AddTable(tables=("a",), merge_all=True), "--merge-all is not supported yet"),
        (AddTable(tables=("a",), max_parallel_copy=0), "at least 1"),
    ],
)
def test_add_table_refuses_what_cannot_be_meant(wish: AddTable, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wish.check()


def test_add_table_attributes_and_arguments() -> None:
    wish = AddTable(
        tables=("a",),
        copy_condition="x < 5",
        handler="londiste",
        max_parallel_copy=3,
        expect_sync=True,
        skip_truncate=True,
        trigger_args=("backup",),
    )
    assert wish.attrs() == {
        "handler": "londiste",
        "copy_condition": "x < 5",
        "max_parallel_copy": "3",
    }
    assert wish.args("json", True) == ["backup", "expect_sync", "skip_truncate"]
    assert "tgflags=AIUDL" in wish.args("urlenc", True)
    assert "tgflags=AIUDL" not in wish.args("urlenc", False)
    with pytest.raises(UsageError, match="unknown handler"):
        replace(wish, handler="nope").attrs()
    with pytest.raises(UsageError, match="Invalid handler argument"):
        replace(wish, handler_args=("nope=1",)).attrs()


SEEDS_SCRIPT = """begin;
alter table digoal_01.user_info add column c1 int;
alter table digoal_01.user_session add column c1 int;
end;
"""


def test_the_walk_throughs_script_loses_its_transaction() -> None:
    script = parse_script(SEEDS_SCRIPT)
    assert script.statements == (
        "alter table digoal_01.user_info add column c1 int",
        "alter table digoal_01.user_session add column c1 int",
    )
    assert "begin" not in script.text
    assert parse_script(script.text).statements == script.statements


def test_a_script_without_transaction_keeps_its_text() -> None:
    body = "$$ begin return 1; end; $$"
    text = (
        "select 1; -- begin;\nselect 'commit;';\n"
        f"create function f() returns int language plpgsql as {body};"
    )
    script = parse_script(text)
    assert script.text == text
    assert len(script.statements) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "savepoint a",
        "rollback",
        "rollback to a",
        "release a",
        "commit and chain",
        "prepare transaction 'x'",
        "vacuum t",
        "create index concurrently i on t (a)",
        "drop index concurrently i",
        "reindex table concurrently t",
        "create database x",
        "alter system set work_mem = '1MB'",
    ],
)
def test_what_cannot_be_atomic_is_refused(statement: str) -> None:
    with pytest.raises(UsageError, match="cannot be part of a script"):
        parse_script(f"select 1; {statement};")


def test_analyze_is_fine_and_nonsense_is_one_line() -> None:
    assert parse_script("analyze t").statements == ("analyze t",)
    with pytest.raises(UsageError) as caught:
        parse_script("alter tabel x")
    assert "\n" not in caught.value.message


def test_script_header() -> None:
    text = (
        "-- words\n--*-- Local-Table: s.a, s.b,\n--*--   s.c\n--*-- Need-Schema: x\n"
        "select 1;\n--*-- Need-View: no\n"
    )
    attrs = parse_attrs(text)
    assert attrs == {"local-table": ("s.a", "s.b", "s.c"), "need-schema": ("x",)}
    script = parse_script(text)
    assert script.encoded_attrs == "local-table=s.a%2Cs.b%2Cs.c&need-schema=x"
    with pytest.raises(UsageError, match="Invalid key: Foo"):
        parse_attrs("--*-- Foo: a\nselect 1")
    with pytest.raises(UsageError, match="Need-Function expects"):
        parse_attrs("--*-- Need-Function: f(x)\nselect 1")
    assert parse_attrs("--*-- Need-Function: f\nselect 1") == {"need-function": ("f",)}


def test_script_header_with_empty_lines() -> None:
    text = """
        --*-- Local-Sequence: one
        --*--
        --*-- Local-Table: a ,
        --
        --*--
        --*--     b, c
        --*--
        select 1;"""
    assert parse_attrs(text) == {"local-sequence": ("one",), "local-table": ("a", "b", "c")}


def test_header_survives_the_loss_of_begin() -> None:
    text = "--*-- Local-Table: s.a\nbegin;\nalter table @s.a@ add c int;\ncommit;\n"
    script = parse_script(text)
    assert parse_attrs(script.text) == {"local-table": ("s.a",)}
    assert script.statements == ("alter table @s.a@ add c int",)


def column(name: str, kind: str = "integer", **more: object) -> Column:
    values: dict[str, object] = {
        "not_null": False,
        "default": None,
        "identity": "",
        "generated": "",
        "collation": None,
        "sequence": None,
    }
    return Column(name, kind, **(values | more))  # type: ignore[arg-type]


TABLE = Structure(
    table=QualifiedName("s", "t"),
    kind="r",
    owner="me",
    partition_key=None,
    options=(),
    columns=(
        column(
            "id", not_null=True, default="nextval('s.t_id_seq'::regclass)", sequence="s.t_id_seq"
        ),
        column("odd Name", "text"),
        column("twice", generated="s", default="(id * 2)"),
    ),
    key=("id",),
    constraints=(
        Constraint("t_pkey", "p", "PRIMARY KEY (id)"),
        Constraint("t_check", "c", "CHECK ((id > 0))"),
        Constraint("t_other_fkey", "f", "FOREIGN KEY (id) REFERENCES s.other(id)"),
    ),
    indexes=(Definition("t_name_idx", 'CREATE INDEX t_name_idx ON s.t USING btree ("odd Name")'),),
    triggers=(),
    rules=(),
    grants=(),
)


def test_structures_differ_in_words() -> None:
    other = replace(
        TABLE,
        columns=(column("id", "bigint", not_null=True), column("new", not_null=True)),
        key=(),
    )
    assert differences(TABLE, TABLE) == []
    assert differences(TABLE, other) == [
        'column "id" is integer on provider, bigint here',
        'column "odd Name" (text) is missing here',
        'column "twice" (integer) is missing here',
        'column "new" (integer) is missing on provider, and it is NOT NULL without a default',
        "key is (id) on provider, missing here",
    ]


def test_create_table_plain_and_full() -> None:
    plain = ddl.create_table(TABLE, QualifiedName("s", "t"))
    assert plain == [
        'create table "s"."t" (\n    "id" integer not null,\n    "odd Name" text,\n'
        '    "twice" integer generated always as ((id * 2)) stored\n)',
        'alter table "s"."t" add constraint "t_pkey" PRIMARY KEY (id)',
    ]
    full = ddl.create_table(
        TABLE, QualifiedName("x", "u"), sequences={"s.t_id_seq"}, roles={"me"}, full=True
    )
    assert "default nextval('s.t_id_seq'::regclass)" in full[0]
    assert full[1] == 'alter table "x"."u" add constraint "u_pkey" PRIMARY KEY (id)'
    assert any("u_check" in text for text in full)
    assert not any("FOREIGN KEY" in text for text in full)
    index = next(text for text in full if "index" in text.lower())
    assert '"u_name_idx"' in index and "x.u" in index.replace('"', "")
    assert full[-1] == 'alter table "x"."u" owner to "me"'
