"""Walking the parse trees of PostgreSQL's own parser; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def children(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield the messages that a message holds, each with the name of its field."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        # a repeated field is a container, a single one is the message itself
        for child in value if not hasattr(value, "ListFields") else (value,):
            yield field.name, child


def messages(message: Any) -> Iterator[Any]:
    """Yield every protobuf message of a tree, the root included."""
    yield message
    for _, child in children(message):
        yield from messages(child)
