"""How commands show their results: the contract's table layout, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

#: Columns are never narrower; scripts of operators cut at these places.
_MIN_WIDTH = 15


def table_text(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows as a table; an empty text for zero rows. NULL is written as None."""
    if not rows:
        return ""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(_MIN_WIDTH, len(name), *(len(row[at]) for row in cells))
        for at, name in enumerate(columns)
    ]
    lines = [title, _line(columns, widths), _line(["-" * width for width in widths], widths)]
    lines += [_line(row, widths) for row in cells]
    return "\n".join(lines) + "\n\n\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    return "  ".join([*padded, cells[-1]])


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return str(dict(value)) if value else ""
    return str(value)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    as_json: bool = False,
) -> None:
    """Print rows as a table or as a JSON list of objects."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        sys.stdout.write(table_text(title, columns, rows))
        sys.stdout.flush()  # log lines that follow stand below it, in a file or pipe, too


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    json.dump(value, sys.stdout, indent=2, default=str, ensure_ascii=False)
    sys.stdout.write("\n")


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True on a terminal, unless the user has set NO_COLOR."""
    return stream.isatty() and "NO_COLOR" not in environment and environment.get("TERM") != "dumb"
