"""The quick way and the long way stage the same."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vedur.change.collapse import Collapser
from vedur.change.copytext import fields, line
from vedur.change.quick import QuickReader, csv_blocks, raw_entries, stage_places
from vedur.change.table import Column, TableSpec

COLUMNS = (
    Column("id", "integer", canonical=True),
    Column("k", "text", canonical=True),
    Column("flag", "boolean"),
    Column("n", "numeric"),
    Column("t", "text"),
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
    return line([str(number), "7", "", kind, data, table, ""])


class Sink:
    """A task without servers."""

    def __init__(self, flush_at: int, quick: bool) -> None:
        self.collapser = Collapser(SPECS)
        self.flush_at = flush_at
        self.reader = QuickReader(self.collapser, flush_at, self.take_row, self.flush)
        self.quick = quick
        self.staged: list[tuple[Any, ...]] = []
        self.csv_rows = 0

    def take_row(self, row: str) -> tuple[str, str | None, str | None]:
        ev_id, ev_txid, _, ev_type, data, extra1, _ = fields(row)
        assert ev_id and ev_txid and ev_type
        self.collapser.add_row(ev_id, ev_txid, ev_type, data, extra1)
        return ev_type, extra1, data

    def flush(self) -> None:
        buffers, _ = self.collapser.take()
        chunk: list[tuple[Any, ...]] = []
        for name, buffer in buffers.items():
            for text in buffer.lines(1):
                chunk.append((name, *fields(text[:-1])))
            for shape, entries in raw_entries(buffer):
                places = stage_places(buffer.spec, shape)
                assert places is not None
                block = io.StringIO("".join(csv_blocks(1, shape, entries)))
                for row in csv.reader(block):
                    self.csv_rows += 1
                    values = [None] * len(buffer.spec.stage_columns)
                    for place, value in zip(places, row[5:], strict=True):
                        values[place] = value  # type: ignore[call-overload]
                    chunk.append((name, *row[:5], *values))
            assert sum(buffer.kinds.values()) == len(buffer.entries)
        self.staged += sorted(chunk, key=str)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        if self.quick:
            self.reader.feed(text)
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


def test_rows_that_look_alike_are_not_decoded() -> None:
    row = {"id": "1", "k": '"x"', "flag": "true", "n": "1.50", "t": '"say null"'}
    text = "".join(
        copy_row(i, "public.two", "UPDATE", {**row, "id": str(i)}) for i in range(1, 101)
    )
    sink = Sink(1 << 20, True)
    sink.run(text)
    assert sink.csv_rows == 99  # the first one is learnt from
