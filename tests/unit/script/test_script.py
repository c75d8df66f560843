"""Scripts of execute: what is read in them, and what is refused."""

from __future__ import annotations

import pytest

from vedur.errors import UsageError
from vedur.script.script import parse_attrs, parse_script

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
