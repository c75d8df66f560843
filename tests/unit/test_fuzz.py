"""Garbage in, one clear line out: whatever is read from outside is understood or refused.

Each reader may raise errors of the product and nothing else, and what it says must fit on one line.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from vedur.cli.commands import COMMANDS
from vedur.cli.grammar import Grammar
from vedur.config import load_londiste, load_pgqd
from vedur.db.conninfo import parse
from vedur.errors import VedurError
from vedur.log import mask
from vedur.names import parse_name, quote_ident
from vedur.pipeline.replay.collapse import Collapser
from vedur.script.on_node import rename_tables
from vedur.script.script import parse_script, without_transaction
from vedur.tables.mapping import TableSpec, TargetColumn

FAST = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
#: PostgreSQL's text holds no NUL, and neither do arguments of a process.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def refused(call: Callable[[], Any]) -> str | None:
    """The message of a refusal, None where the input was accepted; anything else is a bug."""
    try:
        call()
    except VedurError as error:
        assert error.message.strip()
        assert "Traceback" not in error.message
        return error.message
    return None


KEYS = ["db", "queue_name", "job_name", "loop_delay", "parallel_copies", "pidfile", "logfile",
        "compare_sql", "lock_timeout", "%(x)s", "spark.master", "on_error"]  # fmt: skip
INI_LINE = st.one_of(
    TEXT,
    st.builds(lambda k, v: f"{k} = {v}", st.sampled_from(KEYS), TEXT),
    st.builds(lambda k, v: f"{k} = {v}", st.sampled_from(KEYS), st.sampled_from(KEYS)),
    st.sampled_from(["[londiste3]", "[spark]", "[pgqd]", "[", "[]", "db =", "= x", " continued"]),
    st.just("queue_name = %(queue_name)s"),
)


@FAST
@given(st.lists(INI_LINE, max_size=8))
@example(["db = %(db)s", "queue_name = %(job_name)s %(nobody)s %"])
@example(["PARALLEL_COPIES=0", " 0", "db=0"])
@example(["config_format = 2", " 3"])
@example(["db = 0", "on_error =", "queue_name = 0"])
@example(["queue_name = %(a", " b)s"])
def test_ini_files(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "x.ini"
    path.write_bytes("\n".join(["[londiste3]", *lines]).encode())
    for message in (
        refused(lambda: load_londiste(str(path))),
        refused(lambda: load_pgqd(str(path))),
    ):
        if message is not None:
            assert str(path) in message and "\n" not in message


@FAST
@given(st.binary(max_size=200))
def test_ini_files_of_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.ini"
    path.write_bytes(data)
    message = refused(lambda: load_londiste(str(path)))
    assert message is None or "\n" not in message


GRAMMAR = Grammar("londiste3", "words", COMMANDS)
WORDS = [c.name for c in COMMANDS] + [
    "-d", "-v", "-q", "-vv", "--ini", "--set", "a=b", "x.ini", "--", "-", "--json", "--all",
    "--where", "--dest-table=", "--rows", "", "--max-parallel-copy=x", "--lag=x",
]  # fmt: skip


@FAST
@given(st.lists(st.one_of(st.sampled_from(WORDS), TEXT), max_size=6))
def test_command_lines(words: list[str]) -> None:
    with suppress(SystemExit):  # --help and --version
        message = refused(lambda: GRAMMAR.parse(words))
        assert message is None or message.strip()


@FAST
@given(TEXT)
def test_names_come_back(text: str) -> None:
    if refused(lambda: parse_name(text)) is None:
        name = parse_name(text)
        assert name.name == (text.partition(".")[2] or text)
        assert parse_name(f"{name.schema}.{name.name}") == name
        assert quote_ident(name.name)[1:-1].replace('""', '"') == name.name


SQL = st.lists(
    st.one_of(
        TEXT,
        st.sampled_from([
            "select 1", "alter table a.b add column c int", ";", "begin", "commit", "'", '"', "$$",
            "--*-- Local-Table: a.b", "--*-- Need-Function: f", "@a.b@", "/*", "*/", "drop table x",
            "create function f() returns int language sql as $$ select 1 $$", "\n", "\ufeff",
        ]),
    ),
    max_size=8,
).map(" ".join)  # fmt: skip


@FAST
@given(SQL)
def test_scripts(text: str) -> None:
    refused(lambda: parse_script(text))
    refused(lambda: without_transaction(text))
    refused(lambda: rename_tables(text, {"a.b": 'other."odd'}))


@FAST
@given(TEXT)
def test_connect_strings(text: str) -> None:
    message = refused(lambda: parse(text))
    assert message is None or "\n" not in message


@FAST
@given(
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=4, max_size=12),
    st.sampled_from(["password={}", "x password='{}' y", "postgres://u:{}@h/d", "Password = {}"]),
)
def test_masking(secret: str, pattern: str) -> None:
    """What a shell or an ini file can hold as a password is not shown."""
    if any(c in secret for c in "'\\\"@/:?#&%[](),;.") or secret in pattern or "***" in secret:
        return
    assert secret not in mask(pattern.format(secret))


SPEC = TableSpec(
    name="public.t",
    dest='"public"."t"',
    stage="stage",
    columns=(
        TargetColumn("id", "integer", canonical=True),
        TargetColumn("v", "text"),
        TargetColumn("j", "jsonb", "json"),
    ),
    unique_keys=(frozenset(("id",)),),
)
TYPES = [
    "I:id", "U:id", "D:id", "I:", "U:id,nope", "I", "U", "D", "R", "X", "", "{", "{}",
    '{"op":"INSERT"}', '{"op":"INSERT","table":["public","t"],"pkey":["id"]}',
    '{"op":"UPDATE","table":"t","pkey":"id"}', '{"op":"DELETE","table":["public","t"],"pkey":[]}',
    '{"op":["x"]}', "EXECUTE", "pgq.location-info", "londiste.add-table", "[" * 2000,
    "{" + '"a":[' * 3000,
]  # fmt: skip
DATA = st.one_of(
    st.none(),
    TEXT,
    st.sampled_from([
        "id=1&v=x", "id=1&id=2", "id", "=", "&&&", "id=%zz", "id=1&unknown=3", "v=only",
        '{"id":1,"v":"x"}', '{"id":null}', '{"id":{"a":1}}', "{", "[]", "null", '{"id":1e999}',
        "(id,v) values ('1','x')", "v='x' where id='1'", "id='1'", "((((", "'", "v=E'\\'",
        '{"id":1,"v":"\\ud800"}', "[" * 3000,
    ]),
)  # fmt: skip


@FAST
@given(st.lists(st.tuples(st.one_of(st.sampled_from(TYPES), TEXT), DATA), min_size=1, max_size=5))
def test_events_written_by_hand(events: list[tuple[str, str | None]]) -> None:
    """Such an event is a fault of its own, a barrier for the worker, or an error that names it."""
    collapser = Collapser({"public.t": SPEC}, frozenset(), None)
    for number, (ev_type, data) in enumerate(events, 1):

        def add(number: int = number, ev_type: str = ev_type, data: str | None = data) -> None:
            collapser.add_row(str(number), "7", ev_type, data, "public.t", ())

        message = refused(add)
        if message is not None:
            assert f"ev_id={number}" in message
            return
    buffers, logged = collapser.take()
    rows = [line for buffer in buffers.values() for line in buffer.lines(1)]
    assert all(row.endswith("\n") and row.count("\n") == 1 for row in rows)
    seen = len(rows) + len(logged) + len(collapser.faults) + len(collapser.barriers)
    assert seen <= len(events) or collapser.truncates
    assert seen or collapser.ignored or collapser.truncates or any(b.noop for b in buffers.values())


@pytest.mark.parametrize("depth", [500, 100_000])
def test_deeply_nested_values(depth: int) -> None:
    collapser = Collapser({"public.t": SPEC}, frozenset(), None)
    data = '{"id":1,"j":' + "[" * depth + "]" * depth + "}"
    kind = '{"op":"INSERT","table":["public","t"],"pkey":["id"]}'
    refused(lambda: collapser.add_row("1", "7", kind, data, "public.t", ()))
