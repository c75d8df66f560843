"""Attributes of a table, written and read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.attrs import decode_attrs, encode_attrs


@given(st.dictionaries(st.text(min_size=1), st.none() | st.text()))
def test_attributes_come_back(attrs: dict[str, str | None]) -> None:
    assert decode_attrs(encode_attrs(attrs)) == attrs
