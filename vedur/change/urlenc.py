"""The urlencoded payload of `pgq.logutriga`: `col=val&col2&...`, no `=` meaning NULL."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote_plus

from vedur.change.copytext import mend

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


def split(data: str) -> tuple[tuple[str, ...], list[str | None]]:
    """Column names, still encoded so that a caller can cache by them, and decoded values."""
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


def decode(data: str) -> dict[str, str | None]:
    """The row as a dict."""
    names, values = split(data)
    return dict(zip(map(unquote, names), values, strict=True))


def mended(data: str) -> str:
    """The same payload with values that are UTF-8, see `mend`; names stay."""
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
