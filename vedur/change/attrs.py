"""Attributes as the contract stores them: `key=value&key2`, urlencoded; pure.

A key without `=` holds NULL, which differs from an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus, unquote_plus

COPY_CONDITION = "copy_condition"
MAX_PARALLEL_COPY = "max_parallel_copy"
HANDLER = "handler"
HANDLER_MARK = "handler_mark"
ON_ERROR = "on_error"
COLUMNS = "columns"
COPY_NODE = "copy_node"
PART_COLUMN = "part_column"
PART_VALUE = "part_value"
SKIP_TRUNCATE = "skip_truncate"
MERGE = "merge"
#: By which rules rows of the table are masked, here or on the way here.
MASKED = "masked"


def encode_attrs(attrs: Mapping[str, str | None]) -> str | None:
    """Return the stored text; None where there is nothing to store."""
    if not attrs:
        return None
    return "&".join(
        quote_plus(key) if value is None else f"{quote_plus(key)}={quote_plus(value)}"
        for key, value in attrs.items()
    )


def same_but_policy(one: str | None, other: str | None) -> bool:
    """Do two stored texts ask for the same rows and columns?

    What becomes of refused events may change at any time: it changes nothing of what was copied or
    staged before.
    """
    return decode_attrs(one) | {ON_ERROR: None} == decode_attrs(other) | {ON_ERROR: None}


def keeps_rows(attrs: Mapping[str, str | None]) -> bool:
    """Does `--skip-truncate` hold, by which the first copy leaves the rows that it finds?"""
    return SKIP_TRUNCATE in attrs and attrs[SKIP_TRUNCATE] not in ("0", "f", "false", "no")


def decode_attrs(text: str | None) -> dict[str, str | None]:
    """Return the attributes of a stored text; empty for None."""
    found: dict[str, str | None] = {}
    for part in (text or "").split("&"):
        if part:
            key, equals, value = part.partition("=")
            found[unquote_plus(key)] = unquote_plus(value) if equals else None
    return found
