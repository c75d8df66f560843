"""The formats in which rows come: JSON, urlencoded and SQL fragments in events, COPY's text. Pure.

    json    `{"id":1,"b":null}`, one object, a member per column (`pgq.jsontriga`)
    urlenc  `id=1&b`, no `=` meaning NULL (`pgq.logutriga`)
    sql     a fragment of a statement (`pgq.sqltriga`):
            I   (c1,c2) values ('a',null)
            U   c2='b',c3=null where c1='a'
            D   c1='a' and c2='b'
    copy    a line per row, values apart by tabs: events are read in it, changes staged in it

Values leave here as the text that PostgreSQL's input functions take, never as Python numbers: a
numeric of a thousand digits stays what it was. Nested values of JSON occur where a trigger wrote
the row with `row_to_json`; what they become depends on the column's type. SQL fragments are parsed,
not spliced: values then meet the same typed statements as every other format, and an identifier is
quoted by us.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from urllib.parse import quote_plus

from vedur.errors import StateError

# -- json -----------------------------------------------------------------------------------------

_decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]
_PLAIN = frozenset((str, type(None)))


def split_json(data: str) -> tuple[tuple[str, ...], list[Any]]:
    """Return column names and values; nested values come back as `Nested`."""
    row = _scan(data, 0)[0] if data[0] == "{" else _decoder.decode(_text_only(data))
    values = list(row.values())
    if _PLAIN.issuperset(map(type, values)):
        return tuple(row), values
    if not any(isinstance(v, (list, dict)) for v in values):
        return tuple(row), [_scalar(v) for v in values]
    raw = _raw_members(data)
    return tuple(row), [
        Nested(raw[n]) if isinstance(v, (list, dict)) else _scalar(v) for n, v in row.items()
    ]


def _text_only(data: str) -> str:
    if data.startswith(NOT_UTF8):
        raise ValueError(
            "it has bytes that are not UTF-8 (the provider's database has no encoding, SQL_ASCII)"
        )
    return data


def _scalar(value: Any) -> str | None:
    if value is True:
        return "t"
    if value is False:
        return "f"
    return value  # type: ignore[no-any-return]


class Nested(str):
    """The JSON text of an array or object, exactly as the event has it."""

    __slots__ = ()


def _raw_members(data: str) -> dict[str, str]:
    """Return the text of each member's value, byte for byte: json columns keep their spelling."""
    scan = json.JSONDecoder().raw_decode
    members: dict[str, str] = {}
    at = _skip(data, 0) + 1
    while True:
        at = _skip(data, at)
        if data[at] == "}":
            return members
        name, at = scan(data, at)
        start = _skip(data, _skip(data, at) + 1)
        _, at = scan(data, start)
        members[name] = data[start:at]
        at = _skip(data, at)
        if data[at] == ",":
            at += 1


def _skip(data: str, at: int) -> int:
    while data[at] in " \t\r\n":
        at += 1
    return at


def nested_to_text(text: str, type_kind: str) -> str:
    """Return what the column's input function takes for a nested JSON value.

    `type_kind` is `json` (the text itself), `array` or `record`; elements of an array of json
    stay JSON (`array:json`).
    """
    if type_kind == "json":
        return str(text)
    value = _decoder.decode(text)
    return _literal(value, json_elements=type_kind == "array:json")


def _literal(value: Any, json_elements: bool) -> str:
    if isinstance(value, list):
        return "{" + ",".join(_element(v, json_elements) for v in value) + "}"
    return "(" + ",".join(_attribute(v) for v in value.values()) + ")"


def _element(value: Any, json_elements: bool) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _literal(value, json_elements)
    if json_elements and not isinstance(value, str):
        return _quoted(json.dumps(value, ensure_ascii=False))
    return _quoted(_text(value))


def _attribute(value: Any) -> str:
    return "" if value is None else _quoted(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return _literal(value, json_elements=False)
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def decode_json(data: str) -> dict[str, Any]:
    """Return the row as a dict."""
    names, values = split_json(data)
    return dict(zip(names, values, strict=True))


# -- urlenc ---------------------------------------------------------------------------------------

_HEX = {
    f"{a}{b}": bytes.fromhex(f"{a}{b}")
    for a in "0123456789abcdefABCDEF"
    for b in "0123456789abcdefABCDEF"
}


def unquote(text: str, read: Callable[[bytes], str] = bytes.decode) -> str:
    """Undo `+` and `%xx`; bytes that the escapes form are UTF-8, unless `read` takes others."""
    text = text.replace("+", " ")
    if "%" not in text:
        return text
    head, *rest = text.split("%")
    out = [head.encode()]
    for part in rest:
        byte = _HEX.get(part[:2])
        if byte is None:
            out.append(b"%" + part.encode())
        else:
            out.append(byte)
            out.append(part[2:].encode())
    return read(b"".join(out))


def split_urlenc(data: str) -> tuple[tuple[str, ...], list[str | None]]:
    """Return column names, still encoded so that a caller can cache by them, and decoded values."""
    names = []
    values: list[str | None] = []
    for part in data.split("&") if data else ():
        name, equals, value = part.partition("=")
        names.append(name)
        if not equals:
            values.append(None)
        elif "%" in value or "+" in value:
            values.append(unquote(value))
        else:
            values.append(value)
    return tuple(names), values


def decode_urlenc(data: str) -> dict[str, str | None]:
    """Return the row as a dict."""
    names, values = split_urlenc(data)
    return dict(zip(map(unquote, names), values, strict=True))


def mended_urlenc(data: str) -> str:
    """Return the same payload with values that are UTF-8, see `mend`; names stay."""
    parts = [part.partition("=") for part in data.split("&")]
    return "&".join(f"{name}{equals}{_mended(value)}" for name, equals, value in parts)


def _mended(value: str) -> str:
    if "%" not in value:
        return value
    try:
        if "\0" not in unquote(value):
            return value
    except UnicodeDecodeError:
        pass
    return quote_plus(unquote(value, mend))


# -- sql ------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<ident>"(?:[^"]|"")*")
      | (?P<estring>[eE]'(?:[^'\\]|''|\\.)*')
      | (?P<string>'(?:[^']|'')*')
      | (?P<word>[^\s,()='"]+)
      | (?P<punct>[,()=])
    )""",
    re.VERBOSE | re.DOTALL,
)

_Token = tuple[str, str]


def _tokens(text: str) -> list[_Token]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise StateError(
                f"SQL fragment cannot be read at position {at}: {text[at : at + 40]!r}"
            )
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


def _name(token: _Token) -> str:
    kind, text = token
    return text[1:-1].replace('""', '"') if kind == "ident" else text


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def _value(token: _Token) -> str | None:
    kind, text = token
    if kind == "string":
        return text[1:-1].replace("''", "'")
    if kind == "estring":
        body = text[2:-1].replace("''", "'")
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), body, flags=re.DOTALL)
    if text.lower() == "null":
        return None
    return text


def _pairs(tokens: list[_Token], separator: str) -> dict[str, str | None]:
    """Parse pairs `name = value` separated by `,` or `and`; `name is null` occurs in conditions."""
    found: dict[str, str | None] = {}
    at = 0
    while at < len(tokens):
        name = _name(tokens[at])
        if tokens[at + 1][1].lower() not in ("=", "is"):
            raise StateError(f"SQL fragment has no = after {name!r}")
        found[name] = _value(tokens[at + 2])
        at += 3
        if at < len(tokens):
            if tokens[at][1].lower() != separator:
                raise StateError(f"SQL fragment has {tokens[at][1]!r} instead of {separator!r}")
            at += 1
    return found


def decode_sql(op: str, data: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return the values that the event sets, and the key that it is about; an insert has no key of
    its own."""
    tokens = _tokens(data)
    try:
        if op == "I":
            close = tokens.index(("punct", ")"))
            names = [_name(t) for t in tokens[1:close:2]]
            values = [_value(t) for t in tokens[close + 3 : -1 : 2]]
            return dict(zip(names, values, strict=True)), {}
        if op == "D":
            return {}, _pairs(tokens, "and")
        where = next(i for i, t in enumerate(tokens) if t[0] == "word" and t[1].lower() == "where")
        return _pairs(tokens[:where], ","), _pairs(tokens[where + 1 :], "and")
    except (IndexError, ValueError, StopIteration):
        raise StateError(f"SQL fragment of {op} cannot be read: {data[:80]!r}") from None


# -- COPY's text, both ways -----------------------------------------------------------------------

_SPECIAL = re.compile(r"[\\\t\n\r]")
_TO_ESCAPE = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FROM_ESCAPE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}

NULL = "\\N"
#: What stands before a payload that cannot be text.
NOT_UTF8 = "not UTF-8: "
_SHOWN = "vedur.shown"
_MENDED = "vedur.mended"
#: What stands for a byte that cannot be text.
REPLACEMENT = "\ufffd"
#: Characters of rows that are sent together.
_BLOCK_CHARS = 1 << 18


def escape(value: str) -> str:
    """Return a value as COPY wants it."""
    if _SPECIAL.search(value) is None:
        return value
    return _SPECIAL.sub(lambda m: _TO_ESCAPE[m[0]], value)


def line(values: Iterable[str | None]) -> str:
    """Return one row, newline included."""
    return "\t".join([NULL if v is None else escape(v) for v in values]) + "\n"


def fields(row: str) -> list[str | None]:
    """Return the values of one row that COPY sent, newline already off."""
    parts: list[str | None] = list(row.split("\t"))
    if "\\" not in row:
        return parts
    return [_unescape(p) for p in parts]  # type: ignore[arg-type]


def in_blocks(rows: Iterable[str]) -> Iterator[bytes]:
    """Yield rows joined to blocks that are worth sending."""
    block: list[str] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row)
        if size > _BLOCK_CHARS:
            yield "".join(block).encode()
            block, size = [], 0
    if block:
        yield "".join(block).encode()


def mend(data: bytes) -> str:
    """Return bytes as text in which each byte that UTF-8 cannot have there becomes U+FFFD; so does
    zero, which PostgreSQL cannot store. This is what upstream's `encoding` does."""
    return data.decode("utf-8", _MENDED).replace("\0", REPLACEMENT)


def readable(block: bytes, mended: Collection[bytes] = ()) -> bytes:
    """Return rows of events as COPY text that are all UTF-8. Of a row that is not, the last value
    becomes one that no decoder takes and that says why: so it is that one event which is refused.
    Rows of tables in `mended`, which the last value but one names, are mended instead."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return b"".join(_readable(row, mended) + b"\n" for row in block.split(b"\n")[:-1])
    return block


def _readable(row: bytes, mended: Collection[bytes]) -> bytes:
    try:
        row.decode()
    except UnicodeDecodeError:
        parts = row.split(b"\t")
        if len(parts) > 1 and parts[-2] in mended:
            return mend(row).encode()
        *head, last = (part.decode("utf-8", _SHOWN) for part in parts)
        return "\t".join([*head, NOT_UTF8 + last]).encode()
    return row


def _shown(error: UnicodeError) -> tuple[str, int]:
    """Return bytes as they are written in hexadecimal; the backslash is doubled as COPY has it."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(f"\\\\x{byte:02x}" for byte in wrong), error.end


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return one character for one byte: what follows it may be text again."""
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT, error.start + 1


codecs.register_error(_SHOWN, _shown)
codecs.register_error(_MENDED, _replaced)


def _unescape(field: str) -> str | None:
    if field == NULL:
        return None
    if "\\" not in field:
        return field
    return _ESCAPED.sub(lambda m: _FROM_ESCAPE.get(m[1], m[1]), field)
