"""Changes that a handler sees: each row once, deletes by their key, left-out rows as deletes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from vedur.change.event import Event
from vedur.errors import StateError
from vedur.handlers.api import ColumnSet, Handler
from vedur.pipeline.replay.collapse import Collapser
from vedur.tables.mapping import TableSpec, TargetColumn
from vedur.tables.row_function import RowFunction

COLUMNS = tuple(TargetColumn(name, "text", canonical=True) for name in ("id", "v"))


class Mark(Handler):
    """Writes `<...>` around all values; leaves rows out whose v is `out`."""

    name = "mark"

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if "v" in batch.schema.names:
            batch = batch.filter(pc.not_equal(pc.fill_null(batch["v"], ""), "out"))
        for at, name in enumerate(batch.schema.names):
            if name in ("id", "v"):
                marked = pc.binary_join_element_wise("<", batch[name], ">", "")
                batch = batch.set_column(at, name, marked)
        return batch


def collapser(*, log: bool = False, rewrites: bool = True, seen: bool = False) -> Collapser:
    function = RowFunction(
        "mark", __name__, "Mark", "public.t",
        rewrites=ColumnSet.of("id", "v") if rewrites else None, filters=True,
    )  # fmt: skip
    spec = TableSpec("public.t", '"public"."t"', "s", COLUMNS, (frozenset(("id",)),), rows=function)
    return Collapser({"public.t": spec}, frozenset(["public.t"] if log else []), seen=seen)


def event(number: int, op: str, key: str, value: str | None = None) -> Event:
    kind = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op]
    row = {"id": key, "v": value} if op != "D" else {"id": key}
    told = json.dumps({"op": kind, "pkey": ["id"]})
    return Event(number, 1, told, json.dumps(row), "public.t")


def staged(*events: Event, **options: Any) -> list[list[str]]:
    """Kind and values of what is staged."""
    found = collapser(**options)
    for one in events:
        found.add(one)
    buffers, _ = found.take()
    lines = [line for buffer in buffers.values() for line in buffer.lines(7)]
    return [[line.split("\t")[3], *line.rstrip("\n").split("\t")[5:]] for line in lines]


def test_rows_and_keys_are_seen_once() -> None:
    assert staged(event(1, "I", "a", "x")) == [["I", "<a>", "<x>"]]
    assert staged(event(1, "D", "a")) == [["D", "<a>", "\\N"]]
    assert staged(event(1, "D", "a"), event(2, "D", "b")) == [
        ["D", "<a>", "\\N"],
        ["D", "<b>", "\\N"],
    ]
    assert staged(event(1, "I", "a", "x"), event(2, "D", "b")) == [
        ["I", "<a>", "<x>"], ["D", "<b>", "\\N"],
    ]  # fmt: skip
    assert staged(event(1, "I", "a", "x"), seen=True) == [["I", "a", "x"]]


def test_rows_that_are_left_out() -> None:
    assert staged(event(1, "I", "a", "out")) == []
    assert staged(event(1, "U", "a", "out")) == [["D", "<a>", "\\N"]]
    assert staged(event(1, "U", "a", "out"), event(2, "U", "a", "x")) == [["P", "<a>", "<x>"]]
    assert staged(event(1, "U", "a", "x"), event(2, "U", "a", "out")) == [["D", "<a>", "\\N"]]


def test_events_that_are_passed_through_are_seen_too() -> None:
    found = collapser(log=True)
    for one in (event(1, "I", "a", "x"), event(2, "U", "b", "out"), event(3, "D", "c")):
        found.add(one)
    _, log = found.take()
    told = [(e.ev_id, json.loads(e.ev_type)["op"], json.loads(e.ev_data or "")) for e in log]
    assert told == [
        (1, "INSERT", {"id": "<a>", "v": "<x>"}),
        (2, "DELETE", {"id": "<b>"}),
        (3, "DELETE", {"id": "<c>"}),
    ]


def test_a_key_that_is_changed_in_silence_stops() -> None:
    with pytest.raises(StateError, match='changes column "id" of the key without saying so'):
        staged(event(1, "I", "a", "x"), rewrites=False)
    assert staged(event(1, "D", "a"), rewrites=False) == [["D", "a", "\\N"]]


def test_a_truncate_forgets_what_came_before() -> None:
    found = collapser()
    found.add(event(1, "I", "a", "x"))
    found.add(Event(2, 1, "R", None, "public.t"))
    found.add(event(3, "I", "b", "y"))
    buffers, _ = found.take()
    (line,) = buffers["public.t"].lines(7)
    assert "<b>" in line and found.truncates == {"public.t": 2}
