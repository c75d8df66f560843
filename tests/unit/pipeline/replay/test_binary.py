"""Rows in the binary form of COPY are taken as their text would be."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedur.change.formats import NULL
from vedur.db.copied_rows import CopiedRows, join_rows
from vedur.errors import InternalError, StateError
from vedur.pipeline.replay.fast_path.binary import BinaryBlock, require_number
from vedur.pipeline.replay.fast_path.columns import DATA, NUMBER, Block

SLICE = 5
_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v",
            "\f": "\\f", "\r": "\\r"}  # fmt: skip
_SYSTEM = ("EXECUTE", "pgq.tick-id", "londiste.add-table")

_text = st.one_of(
    st.none(),
    st.sampled_from(["", "\\", "\\N", "a\tb", "\r\n", "\x08\x0b\x0c", "\x01", "\x7f", "é\u2028"]),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12),
    st.just("x" * 3000),
)


@dataclass
class Row:
    """An event with all that a branch passes on."""

    ev_id: int
    ev_txid: int
    kind: str | None
    table: str | None
    data: str | None
    extras: tuple[str | None, str | None, str | None]
    slice: int = SLICE

    def binary(self) -> bytes:
        """Return the row as binary COPY sends it."""
        numbers = (self.slice, self.ev_id, -12345, self.ev_txid)
        values = [struct.pack(">q", number) for number in numbers]
        texts = (self.kind, self.table, self.data, *self.extras)
        parts = [*values, *(None if t is None else t.encode() for t in texts)]
        return struct.pack(">h", len(parts)) + b"".join(
            struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
            for part in parts
        )

    def text(self) -> str:
        """Return what COPY sends of it to `read_events`."""
        system = self.kind is not None and (
            self.kind == "EXECUTE" or self.kind.startswith(("pgq.", "londiste."))
        )
        extra = json.dumps(list(self.extras)) if system else ""
        fields = (str(self.ev_id), str(self.ev_txid), "", extra, self.kind, self.table, self.data)
        return "\t".join(_written(field) for field in fields) + "\n"


def _written(value: str | None) -> str:
    if value is None:
        return NULL
    return "".join(_ESCAPES.get(letter, letter) for letter in value)


_rows = st.lists(
    st.builds(
        Row,
        st.integers(1, 2**63 - 1),
        st.integers(3, 2**62),
        st.one_of(_text, st.sampled_from(["I", "U", '{"op":"INSERT"}', *_SYSTEM])),
        st.one_of(_text, st.sampled_from(["public.one", "public.two"])),
        st.one_of(_text, st.just('{"id":1,"t":"x"}')),
        st.tuples(_text, _text, _text),
    ),
    max_size=12,
)


def blocks(rows: list[Row]) -> tuple[BinaryBlock, Block]:
    parts = [row.binary() for row in rows]
    binary = BinaryBlock(CopiedRows.of(parts))
    return binary, Block("".join(row.text() for row in rows).encode())


@settings(max_examples=200, deadline=None)
@given(_rows)
def test_a_binary_block_is_read_as_its_text(rows: list[Row]) -> None:
    binary, text = blocks(rows)
    everything = np.arange(len(rows))
    assert binary.count == text.count == len(rows)
    assert binary.text(everything) == "".join(row.text() for row in rows)
    found, wanted = binary.tables(), text.tables()
    assert [t.table for t in found] == [t.table for t in wanted]
    for here, there in zip(found, wanted, strict=True):
        assert here.rows.tolist() == there.rows.tolist()
        assert [here.types[c] for c in here.codes] == [there.types[c] for c in there.codes]
        assert here.text(0, len(here)) == there.text(0, len(there))
    for which in (everything, everything[1::2]):
        if len(which):
            for field in (NUMBER, DATA):
                fields = (block.fields(which, field).to_pylist() for block in (binary, text))
                assert next(fields) == next(fields)


def test_blocks_that_are_held_are_one() -> None:
    rows = [Row(i, 9, "I", "public.one", f"{i}", (None, None, None)) for i in range(1, 8)]
    parts = [row.binary() for row in rows]
    block = BinaryBlock(join_rows([CopiedRows.of(parts[:3]), CopiedRows.of(parts[3:])]))
    assert block.fields(np.arange(7), NUMBER).to_pylist() == [b"%d" % i for i in range(1, 8)]


def test_a_retry_is_refused_by_its_number() -> None:
    rows = [Row(i, 9, "I", "t", "d", (None,) * 3, SLICE if i != 12 else -1) for i in range(10, 14)]
    parts = [row.binary() for row in rows]
    with pytest.raises(StateError, match="event 12 is a retry"):
        require_number(CopiedRows.of(parts), SLICE)
    require_number(CopiedRows.of(parts[:2]), SLICE)


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_rows_of_another_form_are_refused(cut: int) -> None:
    parts = [Row(1, 9, "I", "t", "d", (None, None, None)).binary() for _ in range(2)]
    sizes = np.array([len(parts[0]) - cut, len(parts[1]) + cut])
    with pytest.raises(InternalError, match="form"):
        BinaryBlock(CopiedRows(b"".join(parts), np.cumsum(sizes) - sizes, sizes))
