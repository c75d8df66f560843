"""`obfuscate`: personal data leaves the provider masked, or not at all.

The rules are in a file (`obfuscator_map` of the ini): table, column, rule. The key of the hashes is
`obfuscator_key`. Every column of the provider needs a rule, `"*"` is the rule of all others: a
column that nobody has thought of stops the table, and is not passed on.

The same value gives the same result in every table, so joins hold. `hash`, `hash32`, `hash64`,
`bool`, `keep`, `skip` and nested rules for JSON do what upstream's handler of this name does.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vedur.errors import StateError, UsageError
from vedur.handlers.api import Handler, Scope, TableFacts
from vedur.tables.row_function import ROW_NUMBER, ColumnSet

if TYPE_CHECKING:
    import pyarrow as pa

    from vedur.handlers.keyed_hash import KeyedHash

#: From a text (never None) to what stands in its place.
Mask = Callable[[str], str | None]

_OTHERS = "*"
_DATES = ("date", "timestamp without time zone", "timestamp with time zone")
#: Types whose values are the same text in a copy and in an event, whatever the session is.
_SAME_TEXT = (
    "text", "character varying", "character", "smallint", "integer", "bigint", "numeric",
    "uuid", "citext", "inet", "boolean",
)  # fmt: skip
#: Of these, types whose equal values have one text: others cannot be masked in a key.
_KEY_TYPES = ("text", "character varying", "smallint", "integer", "bigint", "uuid", *_DATES)
#: What takes other letters and digits in the place of its own, as many.
_MASKED_TYPES = ("text", "character varying", "character", "citext", "numeric")
_JSON = ("json", "jsonb", "text", "character varying")
#: Texts that the rule `bool` takes for false.
_FALSE = ("", "0", "f", "false")
_LENGTH = re.compile(r"\([^)]*\)")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
#: Hexadecimal digits without their highest bit.
_VARIANT_0 = {digit: f"{int(digit, 16) & 7:x}" for digit in "0123456789abcdef"}
#: Grows when a rule makes something else of the same value.
_VERSION = 2


@dataclass(frozen=True)
class Rule:
    """How one column is masked: a word and its values, `partial:1:4`.

    `mask` says what becomes of a text; `column_masks` does the same to columns, and tests hold the
    two together. `types` are those of the provider's column that it works on, none for all.
    `distinct`: two values stay two values, so the column may be in a key.
    """

    word: str
    mask: Mask
    types: tuple[str, ...] = ()
    distinct: bool = False
    values: tuple[str, ...] = ()


class Obfuscate(Handler):
    """Masks columns by the rules of a file."""

    name = "obfuscate"
    summary = "Masks columns by rules: personal data does not reach this node."
    depends_on = "its key or its rules are"
    ini_keys = ("obfuscator_key", "obfuscator_map")

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        self._key = (options.get("obfuscator_key") or "").encode()
        if not self._key:
            raise UsageError(f'handler "{self.name}" needs a key: set obfuscator_key in the ini')
        if len(self._key) > hashlib.blake2s.MAX_KEY_SIZE:
            raise UsageError(f"obfuscator_key is longer than {hashlib.blake2s.MAX_KEY_SIZE} bytes")
        tables = json.loads(options.get("obfuscator_map") or "{}")
        found = tables.get(table)
        if not isinstance(found, dict):
            raise UsageError(f'obfuscator_map has no rules for table "{table}"')
        self._written: dict[str, Any] = found
        self.rules = {column: self._rule(column, rule) for column, rule in found.items()}

    # -- what it declares -----------------------------------------------------------------------

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope in which all columns but those that are kept are rewritten."""
        kept = {name for name, rule in self._written.items() if rule == "keep"}
        others = self._written.get(_OTHERS)
        if others is not None and others != "keep":
            # which columns there are is not known here: kept ones are all that stays
            return Scope(rewrites=ColumnSet(frozenset(kept), all_but=True), by_column=True)
        rewritten = frozenset(self._written.keys() - kept - {_OTHERS})
        return Scope(rewrites=ColumnSet(rewritten), by_column=True)

    def check(self, table: TableFacts) -> None:
        """Raise unless every column has a rule that works on its type, every rule has a column, and
        keys stay keys."""
        if table.source_types is not None:
            self.check_columns(tuple(table.source_types))
        for name, kind in (table.source_types or {}).items():
            self._check_type(name, kind)
        for unique in table.unique_keys:
            for name in unique:
                self._check_key(name, table)

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise where a rule has no column and the rule for all others is to keep: the rule may be
        meant for a column that has another name, and that would be kept."""
        lacking = sorted(self.rules.keys() - {_OTHERS} - set(names))
        others = self.rules.get(_OTHERS)
        if lacking and others is not None and others.word == "keep":
            raise StateError(
                f'table "{self.table}": obfuscator_map has a rule for column "{lacking[0]}", and '
                "there is no such column: if it has got another name, its values would be kept by "
                f'rule "{_OTHERS}"; correct the rules'
            )

    def _check_type(self, name: str, kind: str) -> None:
        rule = self._rule_of(name)
        bare = _bare(kind)
        if rule.types and bare not in rule.types:
            raise StateError(
                f'table "{self.table}": rule "{rule.word}" of column "{name}" does not work on '
                f'type "{kind}", but on {", ".join(rule.types)}'
            )

    def _check_key(self, local: str, table: TableFacts) -> None:
        names = {here: there for there, here in table.names.items()}
        name = names.get(local, local)
        if name not in self.rules and (_OTHERS not in self.rules or table.source_types is None):
            return  # a column that only this side has
        if table.source_types is not None and name not in table.source_types:
            return
        rule = self._rule_of(name)
        if not rule.distinct:
            raise StateError(
                f'table "{self.table}": column "{local}" is part of a unique key here, and rule '
                f'"{rule.word}" can make two values one: use hash, hash64 or shift, or drop the key'
            )
        kind = (table.source_types or {}).get(name)
        if rule.word != "keep" and kind is not None and _bare(kind) not in _KEY_TYPES:
            raise StateError(
                f'table "{self.table}": column "{local}" is part of a unique key here, and values '
                f'of type "{kind}" can be equal and have different texts: keep it'
            )

    def publishes(self) -> bool:
        """Say that a branch passes masked events on: every row stays a row."""
        return True

    def settings(self) -> str:
        """Return the key, and the rules of this table alone."""
        return repr((self._key, json.dumps(self._written, sort_keys=True), _VERSION))

    # -- what it does ---------------------------------------------------------------------------

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Mask each column by its rule; columns that are skipped are left out."""
        import pyarrow as pa

        from vedur.handlers.column_masks import mask_columns

        names = [name for name in batch.schema.names if name != ROW_NUMBER]
        rules = {name: self._rule_of(name) for name in names}
        masked = {
            name: batch.column(name) for name in names if rules[name].word not in ("keep", "skip")
        }
        made = mask_columns(masked, rules, self._hash)
        left = [n for n in batch.schema.names if n == ROW_NUMBER or rules[n].word != "skip"]
        columns = [made[name] if name in made else batch.column(name) for name in left]
        return pa.RecordBatch.from_arrays(columns, left)

    def _rule_of(self, column: str) -> Rule:
        rule = self.rules.get(column) or self.rules.get(_OTHERS)
        if rule is None:
            raise StateError(
                f'obfuscator_map has no rule for column "{column}" of table "{self.table}": add '
                f'one, or "{_OTHERS}" for all other columns'
            )
        return rule

    # -- rules ----------------------------------------------------------------------------------

    def _rule(self, column: str, written: Any) -> Rule:
        if isinstance(written, dict):
            return Rule("JSON rules", self._json_mask(column, written), _JSON)
        word, *values = str(written).split(":")
        where = f'rule "{written}" of column "{column}" of table "{self.table}"'
        try:
            return self._named(word, values)
        except (ValueError, TypeError):
            raise UsageError(f"{where} is none: {RULES}") from None

    def _named(self, word: str, values: list[str]) -> Rule:
        if word == "constant":
            text = ":".join(values)
            return Rule(word, lambda _: text)
        if word == "partial":
            head, tail = (int(v) for v in [*values, "0", "0"][:2])
            if not values or len(values) > 2 or min(head, tail) < 0:
                raise ValueError
            ends = (str(head), str(tail))
            return Rule(word, lambda text: _partial(text, head, tail), _SAME_TEXT, values=ends)
        if word == "shift":
            (most,) = values
            days = self._days(int(most))
            return Rule(word, lambda text: _shift(text, days), _DATES, distinct=True)
        if values:
            raise ValueError
        return self._plain[word] if word in self._plain else _none()

    @cached_property
    def _plain(self) -> dict[str, Rule]:
        return {
            "keep": Rule("keep", lambda text: text, distinct=True),
            "skip": Rule("skip", lambda _: None),
            "null": Rule("null", lambda _: None),
            "bool": Rule("bool", lambda text: "f" if text in _FALSE else "t", values=_FALSE),
            "hash32": Rule("hash32", lambda text: str(self._number(text, 4)), _SAME_TEXT),
            "hash64": Rule("hash64", lambda text: str(self._number(text, 8)), _SAME_TEXT, True),
            "hash": Rule("hash", self._uuid, _SAME_TEXT, True),
            "mask": Rule("mask", self._mask, _MASKED_TYPES),
        }

    @cached_property
    def _hash(self) -> KeyedHash:
        from vedur.handlers.keyed_hash import KeyedHash

        return KeyedHash(self._key)

    def _digest(self, text: str, size: int) -> bytes:
        told: bytes = self._hash.of(text, size).digest()
        return told

    def _number(self, text: str, size: int) -> int:
        return int.from_bytes(self._digest(text, size), "big", signed=True)

    def _uuid(self, text: str) -> str:
        """Return a UUID of variant 0, which no generator makes."""
        told: str = self._hash.of(text, 16).hexdigest()
        variant = _VARIANT_0[told[16]]
        return f"{told[:8]}-{told[8:12]}-{told[12:16]}-{variant}{told[17:20]}-{told[20:]}"

    def _mask(self, text: str) -> str:
        """Return another digit for each number, another letter for each letter, all else as it
        is."""
        seed = self._digest(text, 32)
        stream = hashlib.shake_256(seed).digest(2 * len(text))
        found = []
        for at, char in enumerate(text):
            number = int.from_bytes(stream[2 * at : 2 * at + 2], "big")
            kind = unicodedata.category(char)[0]
            if kind == "N":
                found.append(_other(_DIGITS, char, number))
            elif kind in ("L", "M"):
                letter = _other(_LETTERS, char.lower(), number)
                found.append(letter.upper() if char.isupper() else letter)
            else:
                found.append(char)
        return "".join(found)

    def _days(self, most: int) -> int:
        """Return by how many days all dates are shifted: a secret of the key, never 0."""
        if most < 1:
            raise ValueError
        number = int.from_bytes(self._digest("vedur date shift", 8), "big") % (2 * most)
        return number - most if number < most else number - most + 1

    def _json_mask(self, column: str, rules: dict[str, Any]) -> Mask:
        leaves = self._json_rules(column, rules)

        def mask(text: str) -> str:
            try:
                value = json.loads(text, parse_float=_Number, parse_constant=_no_constant)
            except ValueError:
                raise StateError(
                    f'table "{self.table}": column "{column}" has rules for JSON, and a value that '
                    "is none"
                ) from None
            found = _mask_json(value, leaves)
            return _write_json({} if found is None else found)

        return mask

    def _json_rules(self, column: str, rules: dict[str, Any]) -> dict[str, Any]:
        return {
            key: self._json_rules(f"{column}.{key}", rule)
            if isinstance(rule, dict)
            else self._rule(f"{column}.{key}", rule)
            for key, rule in rules.items()
        }


RULES = (
    "there are keep, skip, null, bool, hash, hash32, hash64, mask, constant:TEXT, "
    "partial:FIRST:LAST, shift:DAYS, and an object of rules for JSON"
)


def _bare(kind: str) -> str:
    """Return a type without its length, which may stand in the middle."""
    return " ".join(_LENGTH.sub("", kind).split())


def _none() -> Rule:
    raise ValueError


def _other(alphabet: str, char: str, number: int) -> str:
    """Return a letter or digit that is not this one."""
    at = alphabet.find(char)
    if at < 0:
        return alphabet[number % len(alphabet)]
    return alphabet[(at + 1 + number % (len(alphabet) - 1)) % len(alphabet)]


def _partial(text: str, head: int, tail: int) -> str:
    """Return the first and the last letters; all of a text that is too short for that is hidden."""
    if len(text) <= head + tail:
        return "*" * len(text)
    end = text[len(text) - tail :] if tail else ""
    return text[:head] + "*" * (len(text) - head - tail) + end


def _shift(text: str, days: int) -> str:
    """Return a date, or what a timestamp begins with, so many days later."""
    if text in ("infinity", "-infinity"):
        return text
    try:
        moved = date.fromisoformat(text[:10]) + timedelta(days)
    except (ValueError, OverflowError):
        raise StateError(
            "a date that is not between the years 1 and 9999 cannot be shifted"
        ) from None
    if text.endswith(" BC"):
        raise StateError("a date that is not between the years 1 and 9999 cannot be shifted")
    return f"{moved.isoformat()}{text[10:]}"


class _Number(float):
    """A number of JSON with a fraction or an exponent, and its text: a float has fewer digits."""

    text: str

    def __new__(cls, text: str) -> _Number:
        """Read it."""
        made = super().__new__(cls, text)
        made.text = text
        return made


def _no_constant(text: str) -> None:
    raise ValueError(text)


def _write_json(value: Any) -> str:
    """Write a value as json.dumps does, but numbers as they came."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_write_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_json, value)) + "]"
    return value.text if isinstance(value, _Number) else json.dumps(value)


def _mask_json(value: Any, rules: Any) -> Any:
    """Return what a JSON value becomes, None for what is left out, as keys without a rule are."""
    if isinstance(rules, dict):
        if not isinstance(value, dict):
            return None
        found = {key: _mask_json(value.get(key), rule) for key, rule in rules.items()}
        left = {key: v for key, v in found.items() if v is not None}
        return left or None
    if rules.word == "keep":
        return value
    if rules.word == "skip" or value is None or isinstance(value, dict | list):
        return None
    if rules.word == "bool":
        return "t" if value else "f"
    if isinstance(value, bool):
        value = int(value)  # as upstream's handler hashes it
    text = value if isinstance(value, str) else json.dumps(value)
    masked = rules.mask(text)
    if rules.word in ("hash32", "hash64") and masked is not None:
        return int(masked)
    return masked
