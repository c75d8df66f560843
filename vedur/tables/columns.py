"""A table's column list: which columns of the provider come here, and under which names. Pure.

Written `a,b,c=new_name`: the provider's name, and after `=` the name on this node. A name that
holds a comma, an equals sign, a quote or blanks at its ends stands in double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vedur.errors import UsageError

#: (name on the provider, name here), in the order in which they were listed.
Columns = tuple[tuple[str, str], ...]

_NAME = r'"(?:[^"]|"")+"|[^",=]+'
_ITEM = re.compile(rf"\s*({_NAME})\s*(?:=\s*({_NAME})\s*)?(?:,|$)")
_PLAIN = re.compile(r'[^",=\s](?:[^",=]*[^",=\s])?')


def parse_columns(text: str) -> Columns:
    """Read a column list; a name twice on either side is an error."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or not (match[1].strip() and (match[2] is None or match[2].strip())):
            raise UsageError(
                f'column list cannot be read at "{text[at:]}": write it as a,b,c=new_name'
            )
        source = _unquoted(match[1])
        found.append((source, source if match[2] is None else _unquoted(match[2])))
        at = match.end()
    if not found:
        raise UsageError("column list is empty: write it as a,b,c=new_name")
    for side in (0, 1):
        names = [pair[side] for pair in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f'column list names "{twice}" twice')
    return tuple(found)


def format_columns(columns: Columns) -> str:
    """The text that `parse_columns` reads back."""
    return ",".join(
        _quoted(source) if source == here else f"{_quoted(source)}={_quoted(here)}"
        for source, here in columns
    )


def source_names(columns: Columns | None) -> Mapping[str, str] | None:
    """From names here to names on the provider; None where nothing is renamed or left out."""
    return None if columns is None else {here: source for source, here in columns}


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
