"""What a handler makes of rows by column is what it makes of each event by itself.

The oracle decodes every event (`Collapser.add_row`) and shows it to the handler alone.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.handlers import KEY
from vedur.change.formats import fields, line
from vedur.errors import StateError
from vedur.handlers import keyed_hash
from vedur.handlers.api import Handler
from vedur.handlers.builtin import Londiste
from vedur.handlers.obfuscate import Obfuscate
from vedur.handlers.testing import make_function
from vedur.pipeline.replay import collapse, handled
from vedur.pipeline.replay.collapse import Collapser
from vedur.pipeline.replay.fast_path import rows as fast_rows
from vedur.pipeline.replay.fast_path.made import moments_in_utc
from vedur.pipeline.replay.fast_path.rows import FastReader
from vedur.tables.mapping import TableSpec, TargetColumn
from vedur.tables.row_function import RowFunction

NAMES = ("id", "k", "flag", "n", "t", "u", "m")
TYPES = ("integer", "text", "boolean", "numeric", "text", "text", "timestamp with time zone")
RULES: dict[str, dict[str, str]] = {
    "two": {"t": "hash", "u": "hash", "*": "keep"},
    "key": {"id": "hash64", "k": "hash", "t": "partial:1:1", "*": "keep"},
    "all": {"id": "keep", "k": "keep", "flag": "bool", "n": "hash32", "t": "mask", "u": "null",
            "m": "shift:40"},
    "less": {"id": "keep", "k": "keep", "flag": "skip", "t": "constant:a,b", "u": "skip",
             "m": "keep", "n": "null"},
    "nokey": {"k": "null", "*": "keep"},
    "quotes": {"t": 'constant:say "x"', "*": "keep"},
}  # fmt: skip


class Longer(Handler):
    """Says nothing of its columns: writes one anew, adds one, leaves one out, gives others on."""

    name = "longer"
    seen: ClassVar[set[str]] = set()

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.seen.update(batch.column("id").to_pylist())
        if "boom" in batch.column("u").to_pylist():
            raise ValueError("boom")
        upper = pc.utf8_upper(batch.column("t"))
        columns = {name: batch.column(name) for name in batch.schema.names if name != "n"}
        size = pc.utf8_length(batch.column("m"))
        return pa.RecordBatch.from_pydict({**columns, "t": upper, "size": size})


class Fewer(Handler):
    """Leaves rows out, and says so."""

    name = "fewer"

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.not_equal(pc.fill_null(batch.column("u"), ""), "b"))


def function(kind: str) -> RowFunction:
    if kind == "fewer":
        return RowFunction("fewer", __name__, "Fewer", "public.t", filters=True)
    if kind == "longer":
        return RowFunction("longer", __name__, "Longer", "public.t")
    if kind == "encoding":
        return make_function(Londiste, "public.t", {"encoding": "utf-8"})
    options = {"obfuscator_key": KEY, "obfuscator_map": json.dumps({"public.t": RULES[kind]})}
    return make_function(Obfuscate, "public.t", None, options)


def spec_of(kind: str, keys: tuple[str, ...]) -> TableSpec:
    names = dict(zip(NAMES, TYPES, strict=True))
    if kind in ("all", "longer"):  # a switch is written as `t` there, and not as `true`
        names["flag"] = "text"
    if kind == "longer":
        names["size"] = "integer"
    columns = tuple(TargetColumn(n, t, canonical=t != TYPES[6]) for n, t in names.items())
    return TableSpec(
        "public.t", '"public"."t"', "s", columns, (frozenset(keys),), rows=function(kind)
    )


_text = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "null", 'say "x"', "a\\b", ',"t":', ":x", "x,", "tab\t", "t", "ü", "a" * 70, "\x7f"]
    ),
    st.text(max_size=6),
)
_moment = st.sampled_from(
    [
        "null", '"2020-05-17T10:11:12+02:00"', '"2020-05-17T10:11:12.5+00:00"', '"infinity"',
        '"2020-01-01T00:00:00-08"',
    ]
)  # fmt: skip
_row = st.fixed_dictionaries(
    {
        "id": st.integers(1, 4).map(str),
        "k": st.sampled_from(["x", "y", 'q"', "ü"]).map(json.dumps),
        "flag": st.sampled_from(["true", "false", "null"]),
        "n": st.sampled_from(["0", "-1.50", "1e+10", "123456789012345678901.10", "null", '"NaN"']),
        "t": _text.map(lambda v: json.dumps(v, ensure_ascii=False)),
        "u": st.sampled_from(["a", "b", None]).map(json.dumps),
        "m": _moment,
    }
)
_event = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]),
    _row,
    st.sampled_from(["whole", "whole", "whole", "whole", "key", "less", "urlenc", "truncate"]),
)
Event = tuple[str, dict[str, str], str]


def copy_row(number: int, event: Event, keys: tuple[str, ...]) -> str:
    """An event as COPY sends it: in one of the forms that triggers write."""
    op, row, form = event
    if form == "truncate":
        return line([str(number), "7", "", "", "R", "public.t", ""])
    names = list(keys) if form == "key" and op == "DELETE" else list(NAMES)
    if form == "less" and op == "UPDATE":
        names = [n for n in names if n != "n" or n in keys]
    if form == "urlenc" and op != "DELETE":
        values = {n: json.loads(row[n], parse_float=str, parse_int=str) for n in names}
        data = "&".join(
            n if v is None else f"{n}={quote_plus(str(v)[0].lower() if v in (True, False) else v)}"
            for n, v in values.items()
        )
        return line([str(number), "7", "", "", f"{op[0]}:{','.join(keys)}", "public.t", data])
    data = "{" + ",".join(f'"{n}":{row[n]}' for n in names) + "}"
    kind = json.dumps({"op": op, "table": ["public", "t"], "pkey": list(keys)})
    return line([str(number), "7", "", "", kind, "public.t", data])


_FIELD = re.compile(r'("[^"]*"|[^,"]*)(,|$)')


def csv_values(row: str) -> list[str | None]:
    """A line as the server reads it, where quotes tell a text from NULL."""
    found: list[str | None] = []
    at = 0
    while True:
        match = _FIELD.match(row, at)
        assert match is not None, row
        text = match[1]
        found.append(text[1:-1] if text.startswith('"') else None if text == "null" else text)
        at = match.end()
        if not match[2]:
            assert at == len(row), row
            return found


class Staged:
    """A task without servers; what it stages by hand-out."""

    def __init__(self, spec: TableSpec, flush_at: int = 1 << 30) -> None:
        self.collapser = Collapser({spec.name: spec})
        self.flush_at = flush_at
        self.chunks: list[list[tuple[Any, ...]]] = []
        self.by_column = 0

    def flush(self) -> None:
        buffers, _ = self.collapser.take()
        chunk: list[tuple[Any, ...]] = []
        for buffer in buffers.values():
            types = {c.name: c.type for c in buffer.spec.stage_columns}
            for columns, data in buffer.copies(1):
                for row in b"".join(data).decode().split("\n")[:-1]:
                    if columns is None:
                        head, values = fields(row)[:5], fields(row)[5:]
                    else:
                        head, told = csv_values(row)[:5], csv_values(row)[5:]
                        values = [None] * len(types)
                        for column, value in zip(columns, told, strict=True):
                            values[column] = value
                    chunk.append((*head, *map(as_value, types.values(), values)))
            self.by_column += sum(buffer.kinds.values()) - len(buffer.entries)
        self.chunks.append(sorted(chunk, key=str))

    def by_block(self, text: str, least: int, block: int) -> Staged:
        reader = FastReader(self.collapser, self.flush_at, self.flush, least)
        rows = text.encode().split(b"\n")[:-1]
        for at in range(0, len(rows), block):
            reader.feed(b"".join(row + b"\n" for row in rows[at : at + block]))
        reader.end()
        return self

    def by_event(self, text: str) -> Staged:
        for row in text.split("\n")[:-1]:
            ev_id, ev_txid, _, _, ev_type, extra1, data = fields(row)
            assert ev_id and ev_txid and ev_type
            self.collapser.add_row(ev_id, ev_txid, ev_type, data, extra1)
            for buffer in self.collapser.buffers.values():
                self.collapser._show_to_handler(buffer)
            if self.collapser.size > self.flush_at:
                self.flush()
        self.flush()
        return self

    def outcome(self) -> tuple[Any, ...]:
        c = self.collapser
        return self.chunks, c.truncates, c.faults, c.events, c.ignored, c.missing_columns


def as_value(kind: str, value: str | None) -> str | None:
    """A value as the column has it: the same for all its spellings."""
    if value is None:
        return None
    if kind == "boolean":
        return value[0]
    return handled.moment_in_utc(value) if kind == TYPES[6] else value


def told_by(make: Any) -> Any:
    """What is staged, or the error's words."""
    try:
        return make().outcome()
    except StateError as error:
        return error.message


KINDS = (*RULES, "longer", "fewer", "encoding")


@pytest.mark.parametrize("keys", [("id",), ("id", "k")])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(20, 400))
@given(
    events=st.lists(_event, max_size=40),
    least=st.integers(1, 3),
    block=st.sampled_from([1, 7, 1000]),
    at_once=st.sampled_from([1, 3, 10_000]),
)
def test_rows_by_column_are_those_of_single_events(
    kind: str, keys: tuple[str, ...], events: list[Event], least: int, block: int, at_once: int
) -> None:
    text = "".join(copy_row(number, event, keys) for number, event in enumerate(events, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collapse, "AT_ONCE", at_once)
        # so that a few rows are enough for what is meant for thousands
        patch.setattr(fast_rows, "WORTH_RUNS", 1)
        patch.setattr(keyed_hash, "FEW", 2)
        quick = told_by(lambda: Staged(spec_of(kind, keys)).by_block(text, least, block))
    assert quick == told_by(lambda: Staged(spec_of(kind, keys)).by_event(text))


_zones = st.sampled_from(["+00:00", "+02:00", "-08:30", "+14:00", "+00:53:28", "+01", ""])
_instants = st.tuples(st.datetimes(), st.sampled_from(["T", " "]), _zones).map(
    lambda parts: parts[0].isoformat(parts[1]) + parts[2]
)
_plain = st.datetimes().map(lambda moment: f"{moment.isoformat()}+02:00")


_odd = st.sampled_from(
    [
        "infinity",
        "2020-01-01T10:00:60+00:00",
        "2020-13-01T10:00:00+00:00",
        "2020-01-01T10:00:00.500+00:00",
        "0044-03-15T01:00:00+00:00 BC",
    ]
)


@given(
    st.one_of(
        st.lists(st.one_of(st.none(), _plain), max_size=9),
        st.lists(st.one_of(st.none(), _instants, _odd), max_size=9),
    )
)
def test_moments_of_a_column_are_those_of_single_values(values: list[str | None]) -> None:
    found = moments_in_utc(pa.array(values, pa.string()))
    assert found.to_pylist() == [handled.moment_in_utc(value) for value in values]


def keyed(number: int, **values: str) -> dict[str, str]:
    row = {"id": str(number), "k": '"x"', "flag": "true", "n": "1.50", "t": f'"say {number}"'}
    return {**row, "u": "null", "m": '"2020-05-17T10:11:12+02:00"', **values}


def long_run(ops: list[str], **odd: str) -> str:
    events = [(op, keyed(1 + at % 500), "whole") for at, op in enumerate(ops)]
    if odd:
        events[250] = (events[250][0], keyed(251, **odd), "whole")
    return "".join(copy_row(at, event, ("id",)) for at, event in enumerate(events, 1))


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("quotes", "fewer")])
def test_long_runs_go_by_column(kind: str) -> None:
    """Nearly all rows do, so the properties here are about columns indeed."""
    ops = ["INSERT"] * 250 + ["UPDATE", "DELETE"] + ["INSERT"] * 248 + ["UPDATE"] * 300
    made = Staged(spec_of(kind, ("id",))).by_block(long_run(ops), 32, 1000)
    assert made.outcome() == Staged(spec_of(kind, ("id",))).by_event(long_run(ops)).outcome()
    assert made.by_column >= (150 if kind == "longer" else 400)  # its deletes go one by one


@pytest.mark.parametrize("kind", ["two", "key", "encoding"])
def test_deletes_go_by_column_where_each_column_is_made_alone(kind: str) -> None:
    ops = ["UPDATE", "DELETE"] * 2 + ["DELETE"] * 500
    made = Staged(spec_of(kind, ("id",))).by_block(long_run(ops), 32, 1000)
    assert made.outcome() == Staged(spec_of(kind, ("id",))).by_event(long_run(ops)).outcome()
    assert made.by_column >= 450


def test_rows_that_are_deleted_are_not_shown() -> None:
    ops = ["INSERT"] * 240 + ["DELETE"] * 260
    Longer.seen.clear()
    made = Staged(spec_of("longer", ("id",))).by_block(long_run(ops), 32, 1000)
    assert sum(len(chunk) for chunk in made.chunks) == 500
    assert Longer.seen == {str(number) for number in range(1, 241)}


@pytest.mark.parametrize("odd", [{"t": '"an \\"escape\\""'}, {"n": "[1]"}, {"t": "null"}])
def test_odd_rows_among_others(odd: dict[str, str]) -> None:
    text = long_run(["INSERT"] * 500, **odd)
    made = Staged(spec_of("two", ("id",))).by_block(text, 32, 1000)
    assert made.outcome() == Staged(spec_of("two", ("id",))).by_event(text).outcome()
    assert made.by_column >= 150


def test_values_that_need_escapes_take_the_slow_path() -> None:
    text = long_run(["INSERT"] * 500)
    made = Staged(spec_of("quotes", ("id",))).by_block(text, 32, 1000)
    assert made.outcome() == Staged(spec_of("quotes", ("id",))).by_event(text).outcome()
    assert made.by_column == 0


@pytest.mark.parametrize("kind", ["longer", "all"])
def test_a_handler_that_fails_says_it_as_for_single_events(kind: str) -> None:
    odd = {"u": '"boom"'} if kind == "longer" else {"m": '"soon"'}
    text = long_run(["INSERT"] * 500, **odd)
    made, oracle = Staged(spec_of(kind, ("id",))), Staged(spec_of(kind, ("id",)))
    with pytest.raises(StateError) as told:
        made.by_block(text, 32, 1000)
    with pytest.raises(StateError) as expected:
        oracle.by_event(text)
    assert told.value.message == expected.value.message
    assert "boom" not in told.value.message and "soon" not in told.value.message


def test_a_type_with_another_key_does_not_go_by_column() -> None:
    text = long_run(["INSERT"] * 250)
    other = text.replace('"pkey": ["id"]', '"pkey": ["k"]')
    assert other != text
    made = Staged(spec_of("two", ("id",))).by_block(text + other, 32, 1000)
    assert sum(len(chunk) for chunk in made.chunks) <= 250
    assert made.collapser.buffers["public.t"].log


@pytest.mark.parametrize("flush_at", [1, 20_000])
def test_full_buffers_are_written_in_the_order_of_events(flush_at: int) -> None:
    ops = ["INSERT"] * 500 + ["UPDATE"] * 500 + ["DELETE"] * 500
    made = Staged(spec_of("two", ("id",)), flush_at).by_block(long_run(ops), 32, 100)
    last = 0
    for chunk in made.chunks:
        assert all(int(row[1]) > last for row in chunk)
        last = max([last, *(int(row[2]) for row in chunk)])
    assert last == 1500 and len(made.chunks) > 3 and made.by_column > 500
