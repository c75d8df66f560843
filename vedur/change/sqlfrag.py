"""The SQL fragments of `pgq.sqltriga`, read back into columns and values.

    I   (c1,c2) values ('a',null)
    U   c2='b',c3=null where c1='a'
    D   c1='a' and c2='b'

They are parsed, not spliced: values then meet the same typed statements as every other format,
and an identifier is quoted by us.
"""

from __future__ import annotations

import re

from vedur.errors import StateError

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
    """`name = value` separated by `,` or `and`; `name is null` occurs in conditions."""
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


def decode(op: str, data: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Values set by the event, and the key it is about; an insert has no key of its own."""
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
