"""`applyfn`: events are given to a function of the node's database. `multimaster`: to one that
decides between changes of several roots by their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vedur.change.attrs import encode_attrs
from vedur.errors import StateError, UsageError
from vedur.handlers.api import (
    ALL_OPERATIONS,
    Argument,
    Event,
    Handler,
    Scope,
    Statement,
    switch,
)
from vedur.names import parse_name, quote_literal
from vedur.sql import query

#: What such a function is given: conf, tick, and the ten fields of an event.
ARGUMENTS = 12


class ApplyFunction(Handler):
    """Calls a function for each event."""

    name = "applyfn"
    summary = "Gives each event to a function of this database instead of applying it."
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument(
            "func_name",
            "the function, of twelve arguments: func_conf, the tick of the batch, ev_id, ev_time, "
            "ev_txid, ev_retry, ev_type, ev_data, ev_extra1 to ev_extra4",
            required=True,
        ),
        Argument("func_conf", "its first argument", default=""),
    )

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        self.function = parse_name(self.function_name())
        escaped = self.function.quoted.replace("%", "%%")
        self.call = f"select {escaped}({', '.join(['%s'] * ARGUMENTS)})"

    def function_name(self) -> str:
        """Return the function as it was given."""
        return self.argument("func_name") or ""

    def function_conf(self, event: Event, dest: str) -> str:
        """Return what the function gets as its first argument."""
        return self.argument("func_conf") or ""

    def facts_query(self) -> str:
        """Return the query whether there is such a function."""
        words = (self.function.schema, self.function.name)
        schema, name = map(quote_literal, words)
        return query("catalog", "functions_of").format(schema=schema, name=name, count=ARGUMENTS)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope of all events; what the function makes of them nobody else knows."""
        if not facts or not facts[0]:
            raise StateError(
                f"there is no function {self.function.quoted} of {ARGUMENTS} arguments here: "
                "create it, or give the role of the worker the right to call it"
            )
        why = f"only function {self.function.quoted} knows what rows should be here"
        return Scope(uncomparable=why)

    def statements(self, event: Event, tick: int | None, dest: str) -> Sequence[Statement]:
        """Call the function once; arguments have no type, so that it chooses theirs."""
        time = event.ev_time.replace("T", " ", 1) if event.ev_time else None
        values = (
            self.function_conf(event, dest),
            None if tick is None else str(tick),
            str(event.ev_id),
            time,
            str(event.ev_txid),
            None,  # ev_retry: events of a set are never put off
            event.ev_type,
            event.ev_data,
            event.ev_extra1,
            event.ev_extra2,
            event.ev_extra3,
            event.ev_extra4,
        )
        return [(self.call, values)]


class MultiMaster(ApplyFunction):
    """Lets the later of several roots' versions of a row stay."""

    name = "multimaster"
    summary = "Takes changes of several roots to one table: the later version of a row stays."
    arguments = (
        Argument("timefield", "the column that says when a row was changed"),
        Argument("altpk", "columns that find a row instead of its key, separated by commas"),
        Argument("fkey_ref_table", "a table: changes without their row there are left out"),
        Argument("fkey_ref_cols", "columns of that table, separated by commas"),
        Argument("fkey_cols", "the columns here that must be equal to them"),
        switch("ignore_truncate", "1: a TRUNCATE on a root leaves the rows here"),
        Argument("func_name", "another function, as for applyfn", default="vedur.merge_on_time"),
        Argument("func_conf", "its first argument, by default what is above, urlencoded"),
    )
    joins = True

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        if not ({"func_conf", "func_name"} & given.keys()) and not self.given.get("timefield"):
            raise UsageError(f'handler "{self.name}" needs a column to decide by: timefield=COLUMN')
        keys = [len((given.get(name) or "").split(",")) for name in ("fkey_ref_cols", "fkey_cols")]
        told = [bool(given.get(name)) for name in ("fkey_ref_table", "fkey_ref_cols", "fkey_cols")]
        if any(told) and (not all(told) or keys[0] != keys[1]):
            raise UsageError(
                f'handler "{self.name}" needs fkey_ref_table, and as many fkey_cols as '
                "fkey_ref_cols, or none of these"
            )

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return `no_merge`: other sets that have the table are added by themselves."""
        return ("no_merge",)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope of all changes; which rows they leave depends on those of the other
        roots."""
        operations = "IUD" if self.is_on("ignore_truncate") else ALL_OPERATIONS
        return replace(super().scope(facts, names), operations=operations)

    def function_conf(self, event: Event, dest: str) -> str:
        """Return the arguments, and the name of the table here where the event has another."""
        told = self.argument("func_conf")
        if told is not None:
            return told
        own = ("func_name", "ignore_truncate")
        conf: dict[str, str | None] = {k: v for k, v in self.given.items() if k not in own and v}
        if dest != event.ev_extra1:
            conf["table"] = dest
        return encode_attrs(conf) or ""
