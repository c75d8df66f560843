"""Kinds of values in an ini file: text in, typed value out, `ValueError` where it does not fit.

`expected` completes the sentence "expected ..." of the error that the operator sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

#: The words that Python's ConfigParser and libusual accept.
_TRUE = frozenset({"1", "yes", "true", "on", "t", "y"})
_FALSE = frozenset({"0", "no", "false", "off", "f", "n"})


@dataclass(frozen=True)
class Kind:
    """How the text of a value becomes a value."""

    expected: str
    parse: Callable[[str], Any]


def _path(text: str) -> str:
    if not text:
        return ""
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:  # ~nobody
        raise ValueError(text) from error


def _boolean(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in (p.strip() for p in text.split(",")) if part)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


TEXT = Kind("text", str)
CONNSTR = Kind("a libpq connect string", str)
PATH = Kind("a file name", _path)
BOOLEAN = Kind("true or false (also 1/0, yes/no, on/off)", _boolean)
NAMES = Kind("a list of names separated by commas", _names)
WORDS = Kind("a list of names separated by commas or spaces", _words)
SIZE = Kind("a number of bytes (suffix K, M or G allowed)", _size)
ANY_SECONDS = Kind(
    "a number of seconds, 0 or more (fractions allowed)", lambda text: _not_negative(text)
)


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _not_negative(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise ValueError(text)
    return value


def integer(minimum: int) -> Kind:
    """Make the kind of whole numbers of at least `minimum`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise ValueError(text)
        return value

    return Kind(f"a whole number, {minimum} or more", parse)


def seconds(*, above: float) -> Kind:
    """Make the kind of seconds with fractions, greater than `above`."""

    def parse(text: str) -> float:
        value = _number(text)
        if value <= above:
            raise ValueError(text)
        return value

    return Kind(f"a number of seconds greater than {above:g} (fractions allowed)", parse)


def choice(*words: str) -> Kind:
    """Make the kind of one of a few words."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return Kind("one of " + ", ".join(words), parse)


PERIOD = seconds(above=0)
