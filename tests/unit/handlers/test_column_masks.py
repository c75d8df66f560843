"""Masks of whole columns are those of single values, whatever the values and however many."""

from __future__ import annotations

import json
from datetime import date, datetime
from hashlib import blake2s

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.labs.handlers import KEY
from vedur.errors import StateError
from vedur.handlers import column_masks, keyed_hash
from vedur.handlers.column_masks import mask_columns
from vedur.handlers.keyed_hash import KeyedHash
from vedur.handlers.obfuscate import Obfuscate

RULES = (
    "hash", "hash32", "hash64", "null", "constant:x:y", "constant:", "bool", "mask",
    "partial:0:4", "partial:1:4", "partial:2", "partial:0:0",
)  # fmt: skip
_texts = st.one_of(
    st.none(),
    st.sampled_from(["", "0", "f", "t", "false", "a" * 63, "a" * 64, "a" * 65, "ü" * 32, "日本🎉"]),
    st.text(max_size=70),
)
_days = st.dates(date(1900, 1, 1), date(2200, 1, 1))
_times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
_moments = st.one_of(
    st.none(),
    st.sampled_from(["infinity", "-infinity"]),
    _days.map(str),
    _times.map(str),
    _times.map(lambda moment: f"{moment}+00"),
)


def masks(rule: str) -> Obfuscate:
    rules = json.dumps({"public.t": {"a": rule, "b": rule}})
    return Obfuscate("public.t", {}, {"obfuscator_key": KEY, "obfuscator_map": rules})


def check(rule: str, a: list[str | None], b: list[str | None]) -> None:
    """Two columns with one rule against each value by itself."""
    handler = masks(rule)
    columns = {"a": pa.array(a, pa.string()), "b": pa.array([*b, None, "x"], pa.string())[: len(b)]}
    made = mask_columns(columns, handler.rules, KeyedHash(KEY.encode()))
    for name, values in (("a", a), ("b", b)):
        mask = handler.rules[name].mask
        assert made[name].type == pa.string()
        made[name].validate(full=True)
        assert made[name].to_pylist() == [None if v is None else mask(v) for v in values]


@pytest.mark.parametrize("rule", RULES)
@given(a=st.lists(_texts, max_size=12), b=st.lists(_texts, max_size=12), few=st.integers(0, 12))
def test_columns_are_masked_as_values_are(
    rule: str, a: list[str | None], b: list[str | None], few: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # so that few values are enough for what is meant for thousands
        patch.setattr(keyed_hash, "FEW", few)
        patch.setattr(keyed_hash, "_AT_ONCE", 5)
        patch.setattr(column_masks, "_SAMPLE", 4)
        patch.setattr(column_masks, "_DIFFER", 3)
        check(rule, a, b)


@given(a=st.lists(_moments, max_size=12), b=st.lists(_moments, max_size=12))
def test_moments_are_shifted_as_each_is(a: list[str | None], b: list[str | None]) -> None:
    check("shift:400", a, b)


@pytest.mark.parametrize("bad", ["0044-03-15 BC", "2020-01-01 10:00:00 BC", "soon", "", "2020-1-1"])
def test_a_moment_that_cannot_be_shifted_stops(bad: str) -> None:
    handler = masks("shift:30")
    column = pa.array(["2020-05-17 10:11:12", bad])
    with pytest.raises(StateError, match="cannot be shifted"):
        mask_columns({"a": column}, handler.rules, KeyedHash(KEY.encode()))


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("key", ["k", "x" * 32])
def test_many_hashes_are_those_of_hashlib(size: int, key: str) -> None:
    """Every length of a text up to two blocks, in batches that are hashed together."""
    texts = [f"{number:x}" * (number % 40) for number in range(keyed_hash.FEW + 3000)]
    texts += ["x" * length for length in range(129)]
    found = KeyedHash(key.encode()).of_many(pa.array(texts), size)
    for text, made in zip(texts, found, strict=True):
        told = blake2s(text.encode(), digest_size=size, key=key.encode()).digest()
        assert made.tobytes() == told
