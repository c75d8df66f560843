"""The fast path and the slow path stage the same."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vedur.change.formats import fields, line
from vedur.errors import StateError
from vedur.pipeline.replay.collapse import Collapser
from vedur.pipeline.replay.fast_path.rows import FastReader
from vedur.tables.mapping import TableSpec, TargetColumn

COLUMNS = (
    TargetColumn("id", "integer", canonical=True),
    TargetColumn("k", "text", canonical=True),
    TargetColumn("flag", "boolean"),
    TargetColumn("n", "numeric"),
    TargetColumn("t", "text"),
)
UNIQUE = (frozenset(("id", "k")),)
SPECS = {
    "public.two": TableSpec("public.two", '"public"."two"', "two", COLUMNS, UNIQUE),
    "public.one": TableSpec(
        "public.one", '"public"."one"', "one", COLUMNS[:1] + COLUMNS[3:], (frozenset(("id",)),)
    ),
}
KEYS = {"public.two": ["id", "k"], "public.one": ["id"]}

_text = st.one_of(
    st.sampled_from(["", "null", 'say "x"', "a\\b", ',"t":', "}", "x,", '{"id":', "true", "tab\t"]),
    st.text(max_size=8),
)
_number = st.sampled_from(["0", "-1.50", "1e+10", "123456789012345678901234567890.10"])
_row = st.fixed_dictionaries(
    {
        "id": st.integers(1, 3).map(str),
        "k": st.sampled_from(["x", "y", 'q"', "ü"]).map(json.dumps),
        "flag": st.sampled_from(["true", "false", "null"]),
        "n": st.one_of(_number, st.sampled_from(["null", '"NaN"'])),
        "t": st.one_of(st.none(), _text).map(lambda v: json.dumps(v, ensure_ascii=False)),
    }
)
_event = st.tuples(
    st.sampled_from(sorted(SPECS)), st.sampled_from(["INSERT", "UPDATE", "DELETE"]), _row
)


def copy_row(number: int, table: str, op: str, row: dict[str, str]) -> str:
    """A row as COPY sends it."""
    said = {"op": op, "table": table.split("."), "pkey": KEYS[table]}
    names = [c.name for c in SPECS[table].columns]
    if op == "DELETE":
        names = KEYS[table]
    data = "{" + ",".join(f'"{n}":{row[n]}' for n in names) + "}"
    kind = json.dumps(said, separators=(",", ":"))
    return line([str(number), "7", "", "", kind, table, data])


class Sink:
    """A task without servers."""

    def __init__(self, flush_at: int, quick: bool, specs: dict[str, TableSpec] = SPECS) -> None:
        self.collapser = Collapser(specs)
        self.flush_at = flush_at
        self.reader = FastReader(self.collapser, flush_at, self.flush)
        self.quick = quick
        self.staged: list[tuple[Any, ...]] = []
        self.csv_rows = 0
        self.column_rows = 0
        self.flushes = 0

    def take_row(self, row: str) -> None:
        ev_id, ev_txid, _, _, ev_type, extra1, data = fields(row)
        assert ev_id and ev_txid and ev_type
        self.collapser.add_row(ev_id, ev_txid, ev_type, data, extra1)

    def flush(self) -> None:
        self.flushes += 1
        buffers, _ = self.collapser.take()
        chunk: list[tuple[Any, ...]] = []
        for name, buffer in buffers.items():
            first = buffer.first
            begin = len(chunk)
            for columns, data in buffer.copies(1):
                text = b"".join(data).decode()
                if columns is None:
                    chunk += [(name, *fields(row)) for row in text.split("\n")[:-1]]
                    continue
                assert columns
                for row in csv.reader(io.StringIO(text, newline="")):
                    self.csv_rows += 1
                    values = [None] * len(buffer.spec.stage_columns)
                    for column, value in zip(columns, row[5:], strict=True):
                        values[column] = value  # type: ignore[call-overload]
                    chunk.append((name, *row[:5], *values))
            self.column_rows += sum(buffer.kinds.values()) - len(buffer.entries)
            assert sum(buffer.kinds.values()) == len(chunk) - begin
            assert first == min(int(row[2]) for row in chunk[begin:])
        self.staged += sorted(chunk, key=str)

    def run(self, text: str, block: int = 1000) -> list[tuple[Any, ...]]:
        if self.quick:
            rows = text.encode().split(b"\n")[:-1]
            for at in range(0, len(rows), block):
                self.reader.feed(b"".join(row + b"\n" for row in rows[at : at + block]))
            self.reader.end()
            return self.staged
        else:
            for row in text.split("\n")[:-1]:
                self.take_row(row)
                if self.collapser.size > self.flush_at:
                    self.flush()
            self.flush()
        return self.staged


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without the difference between spellings that the server reads alike."""
    same = {None: "null", "true": "t", "false": "f"}
    return [tuple(same.get(v, v) for v in row) for row in rows]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_event, max_size=40), st.sampled_from([1, 1000, 1 << 20]))
def test_both_ways_stage_the_same(
    events: list[tuple[str, str, dict[str, str]]], flush_at: int
) -> None:
    ordered = sorted(enumerate(events, 1), key=lambda e: e[1][0])
    text = "".join(copy_row(number, *event) for number, event in ordered)
    quick = plain(Sink(flush_at, True).run(text))
    assert sorted(quick, key=str) == sorted(plain(Sink(flush_at, False).run(text)), key=str)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(_event, max_size=60),
    st.integers(1, 3),
    st.sampled_from([1, 7, 1000]),
)
def test_rows_by_column_are_staged_the_same(
    events: list[tuple[str, str, dict[str, str]]], least: int, block: int
) -> None:
    text = "".join(copy_row(number, *event) for number, event in enumerate(events, 1))
    sink = Sink(1 << 20, True)
    sink.reader.least_run = least
    quick = plain(sink.run(text, block))
    assert sorted(quick, key=str) == sorted(plain(Sink(1 << 20, False).run(text)), key=str)


def keyed(i: int, **values: str) -> dict[str, str]:
    row = {"id": str(i), "k": '"x"', "flag": "true", "n": "1.50", "t": '"say null"'}
    return {**row, **values}


@pytest.mark.parametrize(
    ("ops", "columns"),
    [
        (["INSERT"] * 300 + ["UPDATE"] * 300, 150),
        (["DELETE"] * 300, 200),
        (["UPDATE"] * 300 + ["DELETE"] * 300, 0),  # other columns: what waits becomes entries
    ],
)
def test_long_runs_are_taken_by_column(ops: list[str], columns: int) -> None:
    rows = [(op, keyed(1 + i % 500)) for i, op in enumerate(ops)]
    if ops[0] != "DELETE":
        rows[250] = (ops[250], keyed(251, t='"an \\"escape\\""'))
    text = "".join(copy_row(i, "public.two", *row) for i, row in enumerate(rows, 1))
    sink, slow = Sink(1 << 20, True), Sink(1 << 20, False)
    assert sorted(plain(sink.run(text)), key=str) == sorted(plain(slow.run(text)), key=str)
    assert sink.column_rows >= columns


@pytest.mark.parametrize("block", [400, 700, 5000])
def test_a_key_goes_on_in_later_blocks(block: int) -> None:
    rows = [(op, keyed(2000)) for op in ("INSERT", "UPDATE")]  # both types are learnt
    rows += [("INSERT", keyed(i, t=f'"ü {i}"')) for i in range(1, 901)]
    rows += [("UPDATE", keyed(i, t='""', k=f'"{"x" * (i % 3)}"')) for i in range(300, 1200)]
    rows += [("UPDATE", keyed(i, n=str(i))) for i in range(1, 1200, 7)]
    for table in SPECS:
        text = "".join(copy_row(i, table, *row) for i, row in enumerate(rows, 1))
        sink, slow = Sink(1 << 20, True), Sink(1 << 20, False)
        assert sorted(plain(sink.run(text, block)), key=str) == sorted(
            plain(slow.run(text)), key=str
        )
        assert sink.column_rows > 1000 and sink.flushes == 1


def test_a_truncate_forgets_what_waits() -> None:
    text = "".join(copy_row(i, "public.one", "INSERT", keyed(i)) for i in range(1, 200))
    truncate = line(["200", "7", "", "", "R", "public.one", ""])
    after = copy_row(201, "public.one", "INSERT", keyed(7))
    sink = Sink(1 << 20, True)
    (row,) = sink.run(text + truncate + after)
    assert row[2] == "201" and sink.collapser.truncates == {"public.one": 200}


def test_an_event_that_was_retried_is_seen() -> None:
    rows = [copy_row(i, "public.one", "INSERT", keyed(i)) for i in range(1, 301)]
    number, txid, _, *rest = rows[199].split("\t")
    rows[199] = "\t".join([number, txid, "1", *rest])
    sink = Sink(1 << 20, True)
    with pytest.raises(StateError, match=r"^event 200 is a retry"):
        sink.run("".join(rows))
    sink.flush()
    assert sink.column_rows


@pytest.mark.parametrize(("table", "null"), [("public.one", "id"), ("public.two", "k")])
def test_a_key_with_a_null_is_like_no_other(table: str, null: str) -> None:
    rows = [keyed(i) for i in range(1, 400)]
    rows[0][null] = "null"
    text = "".join(copy_row(i, table, "INSERT", row) for i, row in enumerate(rows, 1))
    sink, slow = Sink(1 << 20, True), Sink(1 << 20, False)
    assert sorted(plain(sink.run(text)), key=str) == sorted(plain(slow.run(text)), key=str)
    assert sink.column_rows > 100


def test_a_type_written_with_escapes_is_like_no_other() -> None:
    good = '{"a":"\\\\","op":"INSERT","pkey":["id"],"b":"\\\\"}'
    bad = good.replace("\\\\", "\\")  # its escaped form is the text of the good one
    text = ""
    for i in range(1, 200):
        data = f'{{"id":{i},"n":1.5,"t":"x"}}'
        text += line([str(i), "7", "", "", good if i < 100 else bad, "public.one", data])
    sink, slow = Sink(1 << 20, True), Sink(1 << 20, False)
    assert sorted(plain(sink.run(text)), key=str) == sorted(plain(slow.run(text)), key=str)
    assert len(sink.collapser.barriers) == len(slow.collapser.barriers) == 100


def test_rows_of_many_tables_wait_for_more_of_each() -> None:
    specs = {
        f"s.t{i}": TableSpec(f"s.t{i}", f'"s"."t{i}"', f"t{i}", COLUMNS[:1], (frozenset(("id",)),))
        for i in range(50)
    }
    text = ""
    for i in range(1, 10_001):
        name = f"t{i % 50}"
        kind = f'{{"op":"INSERT","table":["s","{name}"],"pkey":["id"]}}'
        text += line([str(i), "7", "", "", kind, f"s.{name}", f'{{"id":{i}}}'])
    sink, slow = Sink(1 << 20, True, specs), Sink(1 << 20, False, specs)
    assert sorted(sink.run(text, block=100), key=str) == sorted(plain(slow.run(text)), key=str)
    assert sink.column_rows > 5_000


def test_a_full_buffer_is_written_between_blocks() -> None:
    text = "".join(copy_row(i, "public.one", "INSERT", keyed(i)) for i in range(1, 1001))
    sink = Sink(20_000, True)
    staged = sink.run(text, block=100)
    assert sorted(int(row[2]) for row in staged) == list(range(1, 1001))
    assert sink.column_rows > 300 and sink.flushes > 3


def test_names_of_every_kind_are_cut_out() -> None:
    odd = ["id", "a b", "ü", "x.y*", "$1", "#-&~", "[z]", "(", "名"]
    for names in (odd, odd + [f"c{i}" for i in range(30)]):
        columns = tuple(TargetColumn(n, "text", canonical=True) for n in names)
        specs = {"s.w": TableSpec("s.w", '"s"."w"', "w", columns, (frozenset(("id",)),))}
        kind = '{"op":"UPDATE","table":["s","w"],"pkey":["id"]}'
        text = ""
        for i in range(1, 301):
            data = ",".join(f'"{n}":"{n}, {i}"' for n in names)
            text += line([str(i), "7", "", "", kind, "s.w", "{" + data + "}"])
        sink, slow = Sink(1 << 20, True, specs), Sink(1 << 20, False, specs)
        assert sorted(plain(sink.run(text)), key=str) == sorted(plain(slow.run(text)), key=str)
        assert sink.column_rows == 299


def test_rows_that_look_alike_are_not_decoded() -> None:
    row = {"id": "1", "k": '"x"', "flag": "true", "n": "1.50", "t": '"say null"'}
    text = "".join(
        copy_row(i, "public.two", "UPDATE", {**row, "id": str(i)}) for i in range(1, 101)
    )
    sink = Sink(1 << 20, True)
    sink.run(text)
    assert sink.csv_rows == 99  # the first one is learnt from
