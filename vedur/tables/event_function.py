"""`statements` of a handler on its way to the commit, and the one way to call it.

As with `RowFunction`, the handler goes by name: equal functions are equal, so that changes that
were staged with one are known to fit. What goes wrong in it is told without its message, which may
quote values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vedur.change.event import Event
from vedur.errors import StateError, UsageError
from vedur.tables.row_function import NamedHandler, make_handler, where_raised

#: A statement with `%s` for its values, and the values.
Statement = tuple[str, Sequence[Any]]


@dataclass(frozen=True)
class EventFunction(NamedHandler):
    """A handler's `statements` by name."""

    whole: bool = False  # there is no table here: it is given truncates, too

    def statements(self, event: Event, tick: int | None, dest: str) -> list[tuple[str, list[Any]]]:
        """Return what to run for an event; raises StateError if the handler fails."""
        try:
            found = list(make_handler(self).statements(event, tick, dest))
            return [(str(text), list(values)) for text, values in found]
        except (StateError, UsageError) as error:
            raise StateError(error.message) from None
        except Exception as error:
            raise StateError(f'handler "{self.handler}" failed: {where_raised(error)}') from None
