"""Payloads that are alike are found by their bytes as a pattern would find them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedur.pipeline.replay.fast_path.payload import Layout, Tally

LAYOUT = Layout(("a", "bü", "long name"), ("number", "any", "text"))
BOOLEAN = Layout(("a name that is longer than some payloads", "t"), ("text", "boolean"))
_KINDS = {
    "text": r'("[^"\\]*")',
    "number": r"([-+0-9.eE]+)",
    "boolean": r"(null|true|false)",
    "any": r'("[^"\\]*"|null|[-+0-9.eE]+)',
}
_VALUES = ["", "1", "-1.5e+3", "1,2", "1/2", "null", "nul", "true", "false", "{}", "[1]"]
_VALUES += ['"', '""', '"x"', '"ü, 名"', '"null"', '"x', 'x"', '"x":"y"', '"}"', '":', '"a"b"']
_VALUES += ['"say \\\\"x\\\\""', '"\\', '",\\"bü\\":"', '":"', '":1,"bü":"']


def payload(layout: Layout, values: list[str]) -> str:
    pairs = zip(layout.names, values, strict=False)
    return "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"


_likely = st.lists(st.sampled_from(_VALUES), min_size=1, max_size=3)
_bits = ["{", "}", ",", ":", '"', '":', "\\", "1", "null", '{"a":', ',"bü":', ',"long name":', '""']
_payload = st.one_of(
    _likely.map(lambda values: payload(LAYOUT, values)),
    _likely.map(lambda values: payload(BOOLEAN, values)),
    st.tuples(
        st.sampled_from(["1", "x"]), st.sampled_from(_VALUES), st.text('":,x', max_size=5)
    ).map(lambda v: payload(LAYOUT, [v[0], v[1], f'"{v[2]}"'])),
    st.lists(st.sampled_from(_bits), max_size=9).map("".join),
)


@settings(deadline=None)
@given(st.lists(_payload, max_size=12), st.sampled_from([LAYOUT, BOOLEAN]))
def test_alike_is_what_a_pattern_finds(payloads: list[str], layout: Layout) -> None:
    parts = zip(layout.names, layout.kinds, strict=True)
    body = ",".join(f'"{re.escape(name)}":{_KINDS[kind]}' for name, kind in parts)
    matches = [
        # A text that begins with a colon looks like one more name.
        re.fullmatch(r"\{" + body + r"\}", p) if p.count('":') == len(layout.names) else None
        for p in payloads
    ]
    alike, split = layout.split(pa.array([p.encode() for p in payloads], pa.large_binary()))
    assert alike.tolist() == [m is not None for m in matches]
    rows = [m.groups() for m in matches if m is not None]
    assert [v.decode() for v in split.whole().to_pylist()] == [m[0] for m in matches if m]
    for columns in (range(len(layout.names)), [0], [1], [0, len(layout.names) - 1]):
        lines = split.lines(columns).to_pylist()
        assert [v.decode() for v in lines] == [",".join(r[i] for i in columns) for r in rows]
    for i, kind in enumerate(layout.kinds):
        texts = [r[i][1:-1] if kind == "text" else r[i] for r in rows]
        assert [v.decode() for v in split.column(i).to_pylist()] == texts


def test_of_some_rows_the_lines_are_theirs() -> None:
    payloads = [payload(LAYOUT, [str(i), "null", f'"{"x" * i}"']) for i in range(9)]
    _, split = LAYOUT.split(pa.array([p.encode() for p in payloads], pa.large_binary()))
    some = split.rows(np.array([1, 2, 7]))
    assert some.lines(range(3)).to_pylist() == [b'1,null,"x"', b'2,null,"xx"', b'7,null,"xxxxxxx"']
    assert some.rows(slice(1, 2)).whole().to_pylist() == [payloads[2].encode()]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_a_tally_counts_between_all_places(size: int) -> None:
    marks = np.arange(size) % 3 == 0
    begins, ends = np.triu_indices(size + 1)
    counted = Tally(marks).between(begins, ends)
    assert counted.tolist() == [int(marks[b:e].sum()) for b, e in zip(begins, ends, strict=True)]
