"""Masks of whole columns: what the rules of `obfuscate` make of many values at once.

A rule is a function from text to text; here are the same functions over Arrow columns, which make
hardly any Python object for a value. Rules that have no such form (JSON; `mask` beyond ASCII) are
computed once for each different value. Null stays null, whatever the rule. docs/performance.md has
what each costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.handlers.keyed_hash import KeyedHash

if TYPE_CHECKING:
    from vedur.handlers.obfuscate import Rule

#: Of so many values at the beginning of a column that many differ: then hardly any is twice.
_SAMPLE, _DIFFER = 500, 450
#: How many bytes of a keyed hash a rule takes.
_HASHED = {"hash": 16, "hash32": 4, "hash64": 8}
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), "<u2")
#: Where the hexadecimal digits of a UUID go, from where to where and behind which of them.
_GROUPS = ((0, 8, 0), (9, 13, 8), (14, 18, 12), (19, 23, 16), (24, 36, 20))
_DAY = 10  # characters of a date


def mask_columns(
    columns: Mapping[str, pa.StringArray], rules: Mapping[str, Rule], keyed: KeyedHash
) -> dict[str, pa.StringArray]:
    """Return the columns as their rules leave them; those with the same rule are masked
    together."""
    groups: dict[int, list[str]] = {}
    for name in columns:
        groups.setdefault(id(rules[name]), []).append(name)
    made: dict[str, pa.StringArray] = {}
    for names in groups.values():
        rule = rules[names[0]]
        masked = _masked(rule, [columns[name] for name in names], keyed)
        made.update(zip(names, masked, strict=True))
    return made


def _masked(
    rule: Rule, columns: Sequence[pa.StringArray], keyed: KeyedHash
) -> list[pa.StringArray]:
    if rule.word in _HASHED:
        size = _HASHED[rule.word]
        write = _uuids if rule.word == "hash" else _numbers
        return _of_distinct(columns, lambda texts: write(keyed.of_many(texts, size)))
    if rule.word == "mask":
        return _of_distinct(columns, lambda texts: _letters(texts, rule, keyed), always=True)
    simple = _SIMPLE.get(rule.word)
    if simple is not None:
        return [simple(column, rule) for column in columns]
    return _of_distinct(columns, lambda texts: _one_by_one(texts, rule), always=True)


def _of_distinct(
    columns: Sequence[pa.StringArray],
    mask: Callable[[pa.StringArray], pa.StringArray],
    always: bool = False,
) -> list[pa.StringArray]:
    """Mask each different value once, all columns together, where some are likely to be equal."""
    texts, places = [], []
    for column in columns:
        if always or not _differs(column):
            encoded = column.dictionary_encode()
            texts.append(encoded.dictionary)
            places.append(encoded.indices)
        elif column.null_count:
            texts.append(column.drop_null())
            there = column.is_valid().to_numpy(zero_copy_only=False)
            places.append(pa.array(np.cumsum(there) - 1, mask=~there))
        else:
            texts.append(column)
            places.append(None)
    made = mask(pa.concat_arrays(texts) if len(texts) > 1 else texts[0])
    found, at = [], 0
    for text, place in zip(texts, places, strict=True):
        part = made.slice(at, len(text))
        at += len(text)
        found.append(part if place is None else part.take(place))
    return found


def _differs(column: pa.StringArray) -> bool:
    """Are its values nearly all different? Then to look for equal ones costs more than it saves."""
    return len(column) >= _SAMPLE and len(column.slice(0, _SAMPLE).unique()) >= _DIFFER


def _one_by_one(texts: pa.StringArray, rule: Rule) -> pa.StringArray:
    return pa.array([rule.mask(text) for text in texts.to_pylist()], pa.string())


def _uuids(digests: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.StringArray:
    """Return the hashes as UUIDs of variant 0."""
    digests[:, 8] &= 0x7F
    digits = _HEX[digests].view(np.uint8)
    text = np.full((len(digests), 36), ord("-"), np.uint8)
    for begin, end, first in _GROUPS:
        text[:, begin:end] = digits[:, first : first + end - begin]
    places = np.arange(len(digests) + 1, dtype=np.int32) * np.int32(36)
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(places), pa.py_buffer(text))


def _numbers(digests: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.StringArray:
    """Return the hashes as signed numbers."""
    size = digests.shape[1]
    return pa.array(digests.view(f">i{size}").ravel().astype(f"i{size}")).cast(pa.string())


# -- other letters and digits ---------------------------------------------------------------------

_ORD_A, _ORD_UPPER_A, _ORD_0 = b"aA0"
_LETTERS, _DIGITS = 26, 10
_ASCII = 128


def _letters(texts: pa.StringArray, rule: Rule, keyed: KeyedHash) -> pa.StringArray:
    """Return the masked texts: those of ASCII are made together, others one by one."""
    within = np.concatenate(([0], np.cumsum(pc.binary_length(texts).to_numpy())))
    _, places, data = texts.buffers()
    if not len(texts) or not within[-1]:
        return texts
    begin = int(np.frombuffer(places, np.int32)[texts.offset])
    text = np.frombuffer(data, np.uint8)[begin : begin + int(within[-1])]
    odd = np.concatenate(([0], np.cumsum(text >= _ASCII)))
    plain = np.diff(odd[within]) == 0
    if plain.all():
        return _ascii_letters(texts, text, within, keyed)
    others = pa.array(~plain)
    found = [_letters(texts.filter(pa.array(plain)), rule, keyed)]
    found.append(_one_by_one(texts.filter(others), rule))
    order = np.argsort(~plain, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(found).take(pa.array(back))


def _ascii_letters(
    texts: pa.StringArray,
    text: np.ndarray[Any, Any],
    within: np.ndarray[Any, Any],
    keyed: KeyedHash,
) -> pa.StringArray:
    """Move each letter and each digit on, by at least one, as the hash of its text says."""
    seeds = [seed.tobytes() for seed in keyed.of_many(texts, 32)]
    sizes = np.diff(within).tolist()
    stream = b"".join(
        shake_256(seed).digest(2 * size) for seed, size in zip(seeds, sizes, strict=True)
    )
    by = np.frombuffer(stream, ">u2")
    made = text.copy()
    for first, count in ((_ORD_A, _LETTERS), (_ORD_UPPER_A, _LETTERS), (_ORD_0, _DIGITS)):
        at = np.flatnonzero(text - np.uint8(first) < count)
        moved = (text[at] - np.uint8(first)).astype(np.int32) + 1 + by[at] % (count - 1)
        made[at] = moved % count + first
    places = pa.py_buffer(within.astype(np.int32))
    return pa.StringArray.from_buffers(len(texts), places, pa.py_buffer(made))


# -- rules without a key --------------------------------------------------------------------------


def _null(column: pa.StringArray, rule: Rule) -> pa.StringArray:
    return pa.nulls(len(column), pa.string())


def _constant(column: pa.StringArray, rule: Rule) -> pa.StringArray:
    return _where_there(column, pa.scalar(rule.mask(""), pa.string()))


def _bool(column: pa.StringArray, rule: Rule) -> pa.StringArray:
    false = pa.array(rule.values, pa.string())
    return _where_there(column, pc.if_else(pc.is_in(column, false), "f", "t"))


def _where_there(column: pa.StringArray, made: Any) -> pa.StringArray:
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.string()))


def _partial(column: pa.StringArray, rule: Rule) -> pa.StringArray:
    """Return the first and the last letters, and stars; nothing but stars for what is too short."""
    head, tail = (int(value) for value in rule.values)
    sizes = pc.utf8_length(column)
    short = pc.less_equal(sizes, head + tail)
    stars = pc.binary_repeat("*", pc.if_else(short, sizes, pc.subtract(sizes, head + tail)))
    parts = [stars]
    if head:
        parts.insert(0, pc.if_else(short, "", pc.utf8_slice_codeunits(column, 0, head)))
    if tail:
        parts.append(pc.if_else(short, "", pc.utf8_slice_codeunits(column, -tail)))
    return pc.binary_join_element_wise(*parts, "")


def _shift(column: pa.StringArray, rule: Rule) -> pa.StringArray:
    """Shift each day once, and keep what is behind it as it is."""
    longer = pc.any(pc.greater(pc.binary_length(column), _DAY)).as_py()
    if not longer or pc.any(pc.ends_with(column, " BC")).as_py():
        (made,) = _of_distinct([column], lambda texts: _one_by_one(texts, rule), always=True)
        return made
    days = pc.utf8_slice_codeunits(column, 0, _DAY).dictionary_encode()
    moved = _one_by_one(days.dictionary, rule).take(days.indices)
    return pc.binary_join_element_wise(moved, pc.utf8_slice_codeunits(column, _DAY), "")


_SIMPLE: dict[str, Callable[[pa.StringArray, Rule], pa.StringArray]] = {
    "null": _null,
    "constant": _constant,
    "bool": _bool,
    "partial": _partial,
    "shift": _shift,
}
