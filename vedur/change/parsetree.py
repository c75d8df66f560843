"""Walking the parse trees of PostgreSQL's own parser; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def messages(message: Any) -> Iterator[Any]:
    """Every protobuf message of a tree, the root included."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        # a repeated field is a container, a single one is the message itself
        for child in value if not hasattr(value, "ListFields") else (value,):
            yield from messages(child)
