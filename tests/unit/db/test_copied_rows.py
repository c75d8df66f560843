"""Messages of COPY data are found where they are, whatever their rows hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedur.db.copied_rows import TRAILER, CopiedRows, _find_messages, _rows_at, join_rows

MARK = b"\0\x0a\0\0\0\x08"


def message(row: bytes) -> bytes:
    return b"d" + (len(row) + 4).to_bytes(4, "big") + row


#: Rows as they are, others, and rows that hold what looks like the beginning of a message.
_rows = st.lists(
    st.one_of(
        st.binary(max_size=40).map(lambda data: MARK + data),
        st.binary(min_size=3, max_size=40),
        st.binary(max_size=9).map(lambda data: MARK + message(MARK + data) + b"d\0\0\0\x0a" + MARK),
        st.just(MARK + b"x" * 5000),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(_rows, st.integers(0, 60), st.integers(0, 6000), st.sampled_from([b"", b"c\0\0\0\x04C"]))
def test_whole_messages_are_found(rows: list[bytes], before: int, cut: int, behind: bytes) -> None:
    parts = [message(row) for row in (*rows, TRAILER)]
    stream = bytes(before) + b"".join(parts) + behind
    seen = stream[: len(stream) - cut] if cut <= len(stream) - before else stream
    begins = before + np.cumsum([0, *map(len, parts)])
    whole = int(np.searchsorted(begins, len(seen), "right")) - 1
    found, end = _find_messages(np.frombuffer(seen, np.uint8), before, MARK)
    assert found.tolist() == begins[:whole].tolist()
    assert end == begins[whole]


@pytest.mark.parametrize("trailed", [False, True])
def test_rows_are_between_the_heads_of_their_messages(trailed: bool) -> None:
    rows = [b"one", b"twelve", b"four"]
    data = b"".join(map(message, [*rows, TRAILER] if trailed else rows))
    heads, end = _find_messages(np.frombuffer(data, np.uint8), 0, MARK)
    assert end == len(data)
    found = _rows_at(data, heads)
    assert found.joined() == b"".join(rows)
    assert found.sizes.tolist() == [3, 6, 4]
    assert found.data == b"".join(map(message, rows))


def test_several_are_joined() -> None:
    one = _rows_at(message(b"abc") + message(b"defg"), np.array([0, 8]))
    both = join_rows([one, _rows_at(message(b"hij"), np.array([0]))])
    ends = both.begins + both.sizes
    found = [both.data[b:e] for b, e in zip(both.begins, ends, strict=True)]
    assert found == [b"abc", b"defg", b"hij"]
    assert CopiedRows.of(found).joined() == both.joined() == b"abcdefghij"
