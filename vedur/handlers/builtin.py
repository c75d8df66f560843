"""Table handlers: their names, arguments and words. What they do is the worker's business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedur.change.attrs import encode_attrs
from vedur.errors import UsageError
from vedur.handlers.registry import DEFAULT_HANDLER


@dataclass(frozen=True)
class Handler:
    """A handler; `args` maps argument names to their meaning."""

    name: str
    summary: str
    args: dict[str, str]


HANDLERS = (
    Handler(
        DEFAULT_HANDLER,
        "Default handler, applies the net change of each row.",
        {},
    ),
)


def find_handler(name: str) -> Handler:
    """The handler of that name. Raises `UsageError` naming those that exist."""
    for handler in HANDLERS:
        if handler.name == name:
            return handler
    known = ", ".join(handler.name for handler in HANDLERS)
    raise UsageError(f'unknown handler "{name}": there is {known}, see show-handlers')


def handler_attr(name: str, args: Sequence[str]) -> str:
    """The stored form `name(args)`, arguments urlencoded; `name` alone without arguments."""
    handler = find_handler(name)
    values: dict[str, str | None] = {}
    for text in args:
        key, equals, value = text.partition("=")
        values[key] = value if equals else None
    bad = sorted(values.keys() - handler.args.keys())
    if bad:
        raise UsageError(f"Invalid handler argument: {bad}")
    encoded = encode_attrs(values)
    return f"{name}({encoded})" if encoded else name
