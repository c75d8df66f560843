"""Rules of obfuscate: same input, same output; keys stay keys; no rule, no value."""

from __future__ import annotations

import json
import string
import unicodedata
from hashlib import blake2s
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.labs.handlers import KEY
from vedur.errors import StateError, UsageError
from vedur.handlers.api import TableFacts
from vedur.handlers.obfuscate import Obfuscate


def make(rules: Any, table: str = "public.t", key: str = KEY) -> Obfuscate:
    options = {"obfuscator_key": key, "obfuscator_map": json.dumps({"public.t": rules})}
    return Obfuscate(table, {}, options)


def masked(rule: Any, *values: str | None) -> list[str | None]:
    batch = pa.RecordBatch.from_pydict({"c": pa.array(values, pa.string())})
    found: list[str | None] = make({"c": rule}).rows(batch).column("c").to_pylist()
    return found


def test_hashes_are_upstreams() -> None:
    def digest(text: str, size: int) -> int:
        key = KEY.encode()
        return int.from_bytes(
            blake2s(text.encode(), digest_size=size, key=key).digest(), "big", signed=size < 16
        )

    assert masked("hash32", "Ann", None) == [str(digest("Ann", 4)), None]
    assert masked("hash64", "Ann") == [str(digest("Ann", 8))]
    (text,) = masked("hash", "Ann")
    assert UUID(text).int == digest("Ann", 16) & ~(0x8000 << 48)


def test_plain_rules() -> None:
    assert masked("keep", "a", None) == ["a", None]
    assert masked("null", "a", None) == [None, None]
    assert masked("constant:x:y", "a", None) == ["x:y", None]
    assert masked("bool", "t", "f", "", "0", "yes", None) == ["t", "f", "f", "f", "t", None]
    assert masked("partial:1:4", "4111111111111111", "abc", None) == [
        "4***********1111", "***", None
    ]  # fmt: skip
    assert masked("partial:2", "Anna") == ["An**"]


@given(st.text(alphabet=string.printable, max_size=40))
def test_a_mask_keeps_the_form(text: str) -> None:
    (found,) = masked("mask", text)
    assert found is not None and len(found) == len(text) and masked("mask", text) == [found]
    for before, after in zip(text, found, strict=True):
        assert before.isdigit() == after.isdigit()
        assert before.isalpha() == after.isalpha() and before.isupper() == after.isupper()
        assert before.isalnum() or before == after


@given(st.dates(), st.dates())
def test_a_shift_keeps_distances(one: Any, other: Any) -> None:
    from datetime import date

    try:
        a, b = masked("shift:30", one.isoformat(), other.isoformat())
    except StateError:
        assert min(one, other).year == 1 or max(one, other).year == 9999
        return
    moved = date.fromisoformat(a or "") - one
    assert 1 <= abs(moved.days) <= 30
    assert date.fromisoformat(b or "") - other == moved


def test_a_shift_leaves_the_time() -> None:
    day, time, offset, never = masked(
        "shift:30", "2020-05-17", "2020-05-17 10:11:12.5", "2020-05-17T10:11:12+02", "infinity"
    )
    assert time == f"{day} 10:11:12.5" and offset == f"{day}T10:11:12+02" and never == "infinity"
    for bad in ("0044-03-15 BC", "soon"):
        with pytest.raises(StateError, match="cannot be shifted") as told:
            masked("shift:30", bad)
        assert bad not in str(told.value)


def test_json_by_path() -> None:
    rules = {"id": "keep", "who": {"mail": "hash", "tel": "mask"}, "n": "hash32", "gone": "skip"}
    value = {"id": 7, "who": {"mail": "a@b", "tel": "12-3", "pin": "1234"}, "n": 5, "x": "secret"}
    (text,) = masked(rules, json.dumps(value))
    found = json.loads(text or "")
    assert found["id"] == 7 and isinstance(found["n"], int)
    assert set(found) == {"id", "who", "n"} and set(found["who"]) == {"mail", "tel"}
    assert "secret" not in (text or "") and "1234" not in (text or "")
    assert masked(rules, "[1]", "{}", None) == ["{}", "{}", None]
    with pytest.raises(StateError) as told:
        masked(rules, "secret")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "bad", ["", "hush", "keep:1", "partial", "partial:-1", "shift:0", "shift:x"]
)
def test_a_rule_that_is_none(bad: str) -> None:
    with pytest.raises(UsageError, match="is none: there are keep, skip"):
        make({"c": bad})


def test_no_key_and_no_rules_stop() -> None:
    with pytest.raises(UsageError, match="set obfuscator_key"):
        make({}, key="")
    with pytest.raises(UsageError, match="longer than 32"):
        make({}, key="x" * 33)
    with pytest.raises(UsageError, match=r'no rules for table "public\.other"'):
        make({}, "public.other")


def test_a_column_without_a_rule_stops() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x"], "b": ["secret"]})
    with pytest.raises(StateError, match='no rule for column "b"') as told:
        make({"a": "keep"}).rows(batch)
    assert "secret" not in str(told.value)
    assert make({"a": "keep", "*": "skip"}).rows(batch).schema.names == ["a"]


def test_keys_stay_keys() -> None:
    facts = TableFacts([("id",), ("mail",)], {"id": "integer", "mail": "text", "n": "text"})
    for rule in ("hash", "hash64", "keep"):
        make({"id": rule, "mail": "hash", "n": "mask"}).check(facts)
    for rule in ("hash32", "mask", "partial:1", "constant:x", "bool", "null", "skip"):
        with pytest.raises(StateError, match='"mail" is part of a unique key here, and rule'):
            make({"id": "keep", "mail": rule, "n": "keep"}).check(facts)
    for kind in ("numeric(9,2)", "citext", "character(4)"):
        make({"id": "keep"}).check(TableFacts([("id",)], {"id": kind}))
        with pytest.raises(StateError, match="can be equal and have different texts"):
            make({"id": "hash"}).check(TableFacts([("id",)], {"id": kind}))
    renamed = TableFacts([("contact",)], names={"mail": "contact"})
    with pytest.raises(StateError, match='"contact" is part of a unique key'):
        make({"mail": "mask"}).check(renamed)


def test_types_whose_text_differs_are_refused() -> None:
    for kind in ("date", "timestamp with time zone", "real", "integer[]", "bytea"):
        with pytest.raises(StateError, match="does not work on type"):
            make({"c": "hash"}).check(TableFacts([], {"c": kind}))
    make({"c": "shift:9"}).check(TableFacts([], {"c": "timestamp(3) with time zone"}))


def test_what_it_rewrites() -> None:
    some = make({"a": "keep", "b": "hash"}).scope(None, {}).rewrites
    assert some is not None and "b" in some and "a" not in some and "other" not in some
    rest = make({"a": "keep", "*": "skip"}).scope(None, {}).rewrites
    assert rest is not None and "other" in rest and "a" not in rest


@given(st.text(max_size=40))
def test_a_mask_leaves_no_letter_and_no_digit_as_it_was(text: str) -> None:
    (found,) = masked("mask", text)
    assert found is not None
    for before, after in zip(text, found, strict=True):
        kind = unicodedata.category(before)[0]
        assert (before != after) is (kind in "LMN")


def test_a_mask_is_for_text_and_numbers_of_any_size() -> None:
    handler = make({"c": "mask"})
    handler.check(TableFacts([], {"c": "numeric(10,2)"}))
    handler.check(TableFacts([], {"c": "character varying(20)"}))
    for kind in ("integer", "boolean", "uuid", "inet"):
        with pytest.raises(StateError, match=f'does not work on type "{kind}"'):
            handler.check(TableFacts([], {"c": kind}))


def test_a_rule_needs_its_column_where_all_others_are_kept() -> None:
    handler = make({"emial": "hash", "*": "keep"})
    with pytest.raises(StateError, match='a rule for column "emial", and there is no such column'):
        handler.check(TableFacts([], {"id": "integer", "email": "text"}))
    handler.check(TableFacts([["id"]], None))  # nobody has asked for the columns
    make({"emial": "hash", "*": "null"}).check(TableFacts([], {"id": "integer", "email": "text"}))


def test_numbers_of_json_keep_their_digits() -> None:
    text = '{"n": 12345678901234567.89, "x": 1e400, "l": [0.10, {"y": -1.0}], "i": 10}'
    (found,) = masked({"n": "keep", "x": "keep", "l": "keep", "i": "keep"}, text)
    assert found == text
    with pytest.raises(StateError, match="a value that is none"):
        masked({"n": "keep"}, '{"n": NaN}')
