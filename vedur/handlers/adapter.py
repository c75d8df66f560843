"""Runs classes that were written for the row-wise interface of Londiste, `londiste.handler`.

A module of `handler_modules` lists them in `__londiste_handlers__`. Their statements for an event
become those of `Handler.statements`, so they run in order and once. Londiste keeps one object for
a batch and calls it from the beginning to the end of it; here an event may be given twice, after a
failure, and alone. So a class is served whose answer to an event depends on that event: one that
gathers events, writes by itself or replaces the copy is refused when the module is read.

Londiste's and skytools' own Python modules, which such a class imports, must be there for Vedur's
Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from vedur.errors import ConfigError, StateError, UsageError
from vedur.handlers.api import ALL_OPERATIONS, Argument, Event, Handler, Scope, Statement
from vedur.tables.row_function import where_raised

#: Where the classes are that a handler is derived from.
_BASE = "londiste.handler"
#: Methods that cannot be honoured where a class has its own, and why.
_REFUSED = {
    "finish_batch": "events are applied one by one, nothing can be gathered until a batch ends",
    "get_copy_condition": "the condition of a first copy must hold for changes, too: use --where",
    "real_copy": "first copies are made by tasks of Spark",
    "real_copy_threaded": "first copies are made by tasks of Spark",
    "get_copy_event": "a branch passes all events on as they are",
    "needs_table": "the table must be there",
    "load_conf": "there is no object for Londiste's configuration here",
}


class Adapted(Handler):
    """A handler of Londiste's interface; each has a subclass of this."""

    upstream: ClassVar[Any]

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        self._made: dict[str, Any] = {}
        self._of(table)

    def _of(self, dest: str) -> Any:
        """Return the object for a table here."""
        if dest not in self._made:
            try:
                self._made[dest] = self.upstream(self.table, dict(self.given), dest)
            except Exception as error:
                raise UsageError(
                    f'handler "{self.name}" does not take these arguments: {where_raised(error)}'
                ) from None
        return self._made[dest]

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Ask the class, which adds its words to a list."""
        words: list[str] = []
        self._of(self.table).add(words)
        return words

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope of all changes, and of truncates unless the class leaves them out."""
        conf = getattr(self._of(self.table), "conf", None)
        ignored = conf is not None and bool(conf.get("ignore_truncate"))
        why = "only its class knows what rows should be here"
        return Scope(operations="IUD" if ignored else ALL_OPERATIONS, uncomparable=why)

    def statements(self, event: Event, tick: int | None, dest: str) -> Sequence[Statement]:
        """Give the class one event as if it were a batch; return what it queues."""
        of, made = self._of(dest), []

        def queue(text: str, _arg: Any = None) -> None:
            made.append(text)

        of.reset()
        of.prepare_batch({"tick_id": tick}, _NoCursor(self.name))
        of.process_event(_as_upstream(event), queue, _NoCursor(self.name))
        return [(text.replace("%", "%%"), ()) for text in made]


class _NoCursor:
    """Stands for the cursor that Londiste gives."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise StateError(
            f'handler "{self._name}" uses the cursor that it is given ({name}), which is not '
            "possible here: it must queue its statements"
        )


def _as_upstream(event: Event) -> SimpleNamespace:
    """Return the event as Londiste's code knows it, each field under both of its names."""
    fields: dict[str, Any] = {
        "id": event.ev_id,
        "txid": event.ev_txid,
        "time": datetime.fromisoformat(event.ev_time) if event.ev_time else None,
        "retry": None,
        "type": event.ev_type,
        "data": event.ev_data,
        "extra1": event.ev_extra1,
        "extra2": event.ev_extra2,
        "extra3": event.ev_extra3,
        "extra4": event.ev_extra4,
    }
    return SimpleNamespace(**fields, **{f"ev_{name}": value for name, value in fields.items()})


def adapt(cls: Any, where: str) -> type[Handler]:
    """Make a handler of a class; raises `ConfigError` with the reason where it cannot be served."""
    name = getattr(cls, "handler_name", None)
    if not (isinstance(cls, type) and name and callable(getattr(cls, "process_event", None))):
        raise ConfigError(f"{where} is no handler of Londiste's interface with a handler_name")
    for method, why in _REFUSED.items():
        if _is_own(cls, method):
            raise ConfigError(f'{where}: "{name}" has a method {method} of its own: {why}')
    words = (cls.__doc__ or "").strip().splitlines()
    known = {
        "name": name,
        "summary": (words[0].rstrip(".") if words else "A handler of Londiste's interface") + ".",
        "arguments": _arguments(cls.__doc__ or ""),
        "upstream": cls,
        "__doc__": cls.__doc__,
        "__module__": __name__,
    }
    made = type(f"{cls.__module__}.{cls.__qualname__}".replace(".", "_"), (Adapted,), known)
    setattr(sys.modules[__name__], made.__qualname__, made)  # it is found by name
    return made


def _is_own(cls: type, method: str) -> bool:
    """Has the class this method from somewhere else than Londiste's base classes?"""
    has: Callable[[type], bool] = lambda c: method in vars(c)  # noqa: E731
    definer = next(filter(has, cls.__mro__), None)
    return definer is not None and definer.__module__ != _BASE


def _arguments(doc: str) -> tuple[Argument, ...]:
    """Read the arguments of a class: as Londiste does, from its documentation."""
    found: list[Argument] = []
    lines = iter(line.strip() for line in doc.splitlines())
    for line in lines:
        if line == "Parameters:":
            break
    for line in lines:
        if not line:
            break
        first, _, rest = line.partition(" ")
        name, equals, _ = first.partition("=")
        if equals:
            found.append(Argument(name, rest.strip(" :-") or name))
    return tuple(found)
