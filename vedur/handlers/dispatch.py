"""`dispatch`: rows go to tables by time, which are made when the first row of a period comes.

Upstream's handler of that name and its presets (`daily_event`, `bulk_monthly_field` and so on),
which set arguments. Those of upstream's arguments that Vedur has commands for are refused with the
name of the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from vedur.errors import StateError, UsageError
from vedur.handlers.api import Argument, Handler, Partitions, Scope, switch
from vedur.names import parse_name
from vedur.tables.target import Moment, Period, RowMode

_PERIODS: dict[str, Period] = {"hour": "hour", "day": "day", "month": "month", "year": "year"}
_MOMENTS: dict[str, Moment] = {"event_time": "event", "batch_time": "batch", "current_time": "now"}
_ROW_MODES: dict[str, RowMode] = {
    "plain": "plain",
    "keep_latest": "keep_latest",
    "keep_all": "keep_all",
}
_NAME_PARTS = ("year", "month", "day", "hour")
#: What a name of a partition and a template may have between `%(` and `)s`.
_NAME_WORDS = ("parent", *_NAME_PARTS)
_TEMPLATE_WORDS = (
    "dest", "part", "parent", "pkeys", "schema_table", "part_field", "part_time", "period",
)  # fmt: skip
_ABOUT_PARTITIONS = (
    "part_mode", "part_field", "period", "part_name", "part_func", "part_template", "pre_part",
    "post_part", "retention_period", "ignore_old_events",
)  # fmt: skip
_INTERVAL = re.compile(r"^\s*\d+\s+(hour|day|week|month|year)s?\s*$")

#: Are the functions that make partitions there?
_FACTS = (
    "select to_regprocedure('vedur.attach_partition(text, text, timestamptz, text)') is not null"
)


class Dispatch(Handler):
    """Rows in partitions by time."""

    name = "dispatch"
    summary = "Puts rows into partitions by time, which are made on demand and dropped when old."
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument(
            "table_mode",
            "part: partitions; direct: the table itself; ignore: nothing is applied",
            ("part", "direct", "ignore"),
            "part",
        ),
        Argument(
            "part_mode",
            "what chooses the partition: the time of the batch or of the event, the time when it "
            "is applied, or a column",
            ("batch_time", "event_time", "date_field", "current_time"),
            "batch_time",
        ),
        Argument("part_field", "the column, by its name here, for part_mode=date_field"),
        Argument("period", "how long a partition is", tuple(_PERIODS), "day"),
        Argument(
            "part_name",
            "pattern of the names, by default %(parent)s_%(year)s and so on down to the period",
        ),
        Argument(
            "part_func",
            "the function that makes a partition, with the arguments of londiste.create_partition",
            default="londiste.create_partition",
        ),
        Argument(
            "part_template",
            "statements that make a partition instead, with %(part)s, %(parent)s, %(pkeys)s, "
            "%(schema_table)s, %(part_field)s, %(part_time)s, %(period)s",
        ),
        Argument("pre_part", "statements to run before that, with the same words"),
        Argument("post_part", "statements to run after that, with the same words"),
        Argument(
            "row_mode",
            "plain: changes are applied as what they are; keep_latest: an update replaces the row, "
            "or brings it; keep_all: an update adds a row, deletes are left out",
            tuple(_ROW_MODES),
            "plain",
        ),
        Argument("event_types", "the changes to apply, of I, U and D", default="I,U,D"),
        Argument("retention_period", "drop partitions that are older, such as 3 months"),
        switch("ignore_old_events", "1: rows for partitions that are too old are left out"),
        switch(
            "ignore_truncate",
            "1: a TRUNCATE on the root leaves the rows here, as it always does without part_field",
        ),
        Argument("load_mode", "how upstream loads; the rows are the same here", ("direct", "bulk")),
        Argument("method", "how upstream loads; the rows are the same here", ("0", "1", "2")),
        Argument("analyze", "about upstream's temporary tables; there are none here", ("0", "1")),
        Argument("fields", "only *, all columns: for some of them use --columns", ("*",)),
    )

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        words = [w.strip().upper() for w in (self.argument("event_types") or "").split(",")]
        if words == ["*"]:
            words = list("IUD")
        if not set(words) <= set("IUD"):
            raise UsageError(
                f'argument "event_types" is a list of I, U and D, not "{given["event_types"]}"'
            )
        self.wanted = "".join(op for op in "IUD" if op in words)
        self.partitions = self._partitions()

    def _partitions(self) -> Partitions | None:
        if self.argument("table_mode") != "part":
            self._require_no_partitions()
            return None
        period = _PERIODS[self.argument("period") or "day"]
        mode, field = self.argument("part_mode") or "", self.argument("part_field")
        if mode == "date_field" and not field:
            raise UsageError(
                f'handler "{self.name}" needs the column that decides: give part_field=COLUMN'
            )
        if mode != "date_field" and self.given.get("part_field"):
            raise UsageError(
                f'argument "part_field" is for part_mode=date_field, and part_mode is "{mode}"'
            )
        suffix = "".join(f"_%({part})s" for part in _NAME_PARTS[: _NAME_PARTS.index(period) + 1])
        name = self.argument("part_name") or f"%(parent)s{suffix}"
        _require_words("part_name", name, _NAME_WORDS, percent=False)
        if "%(parent)s" not in name:
            raise UsageError(
                'argument "part_name" lacks %(parent)s: partitions of several tables would have '
                "the same name"
            )
        for part in re.findall(r"%\((\w+)\)s", suffix):
            if f"%({part})s" not in name:
                raise UsageError(
                    f'argument "part_name" lacks %({part})s: partitions of one {period} each would '
                    "have the same name"
                )
        for what in ("part_template", "pre_part", "post_part"):
            _require_words(what, self.argument(what) or "", _TEMPLATE_WORDS)
        self._require_retention(name, suffix)
        return Partitions(
            period,
            name,
            field if mode == "date_field" else None,
            _MOMENTS.get(mode, "batch"),
            _ROW_MODES[self.argument("row_mode") or "plain"],
            parse_name(self.argument("part_func") or "").quoted,
            self.argument("part_template"),
            self.argument("pre_part"),
            self.argument("post_part"),
            self.argument("retention_period"),
            self.is_on("ignore_old_events"),
        )

    def _require_no_partitions(self) -> None:
        """Raise UsageError for an argument about partitions where there are none."""
        for name in _ABOUT_PARTITIONS:
            if self.given.get(name):
                mode = self.argument("table_mode")
                raise UsageError(f'argument "{name}" is for partitions, and table_mode is "{mode}"')

    def _require_retention(self, name: str, suffix: str) -> None:
        kept = self.argument("retention_period")
        if kept is None:
            if self.is_on("ignore_old_events"):
                raise UsageError(
                    'argument "ignore_old_events" says nothing without retention_period: what is '
                    "old?"
                )
            return
        if not _INTERVAL.match(kept):
            raise UsageError(
                f'argument "retention_period" is a number and hours, days, weeks, months or years, '
                f'not "{kept}"'
            )
        if name != f"%(parent)s{suffix}":
            raise UsageError(
                "partitions are dropped by the time in their names, so retention_period cannot be "
                "with a part_name of your own"
            )
        template = self.argument("part_template")
        if template is not None and not re.search(r"inherit|partition\s+of", template, re.I):
            raise UsageError(
                "partitions that are dropped must inherit from the table, and part_template does "
                "not say so: leave out retention_period, or write inherits (%(parent)s)"
            )

    def facts_query(self) -> str | None:
        """Return the query whether partitions can be made here."""
        return _FACTS if self.partitions is not None else None

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Say which tables rows go to, and whether it can be told which rows should be there."""
        if self.argument("table_mode") == "ignore":
            return Scope(applies=False, uncomparable="it applies nothing (table_mode=ignore)")
        # A history tells what was there: it outlives the rows.
        history = self.partitions is not None and self.partitions.field is None
        kept = self.is_on("ignore_truncate")
        operations = self.wanted + ("" if kept or history else "R")
        if self.partitions is None and self.argument("row_mode") != "plain":
            raise StateError(
                f"row_mode={self.argument('row_mode')} is for partitions, and table_mode is direct"
            )
        if self.partitions is not None and not (facts and facts[0]):
            raise StateError(
                "schema vedur of this database is of an earlier version and cannot make "
                'partitions: run "create-leaf" again, it brings the SQL up to date'
            )
        target = self.partitions
        why = ""
        if self.wanted != "IUD":
            why = f"it applies only {', '.join(self.wanted)} of the changes: the rows are a history"
        elif target is not None and target.row_mode == "keep_all":
            why = "it keeps all versions of a row (row_mode=keep_all)"
        elif target is not None and target.field is None:
            why = "each partition has the rows as the changes of its time left them: a history"
        elif target is not None and target.retention is not None:
            why = (
                "old partitions are dropped (retention_period), so rows of the provider are missing"
            )
        return Scope(
            operations=operations,
            partitions=target,
            uncomparable=why,
            unrepairable=(
                "it ignores TRUNCATE, so rows that are here and not on the provider may be meant "
                "to be here"
            )
            if kept
            else "",
        )


def _require_words(
    argument: str, text: str, known: tuple[str, ...], *, percent: bool = True
) -> None:
    """Raise UsageError for a pattern that says something else than %(word)s, or %% if it may."""
    rest = re.sub(r"%\((" + "|".join(known) + r")\)s" + ("|%%" if percent else ""), "", text)
    if "%" in rest:
        listed = ", ".join(f"%({word})s" for word in known) + (" and %%" if percent else "")
        raise UsageError(f'argument "{argument}" may have {listed}, not "{text}"')


def _presets() -> Iterator[type[Dispatch]]:
    """Make the handlers that are `dispatch` with some arguments set."""
    periods = {"hourly": "hour", "daily": "day", "monthly": "month", "yearly": "year"}
    modes = {
        "event": "event_time",
        "batch": "batch_time",
        "field": "date_field",
        "time": "current_time",
    }
    for load in ("", "bulk_"):
        for word, period in periods.items():
            for end, mode in modes.items():
                preset = {"period": period, "part_mode": mode, "row_mode": "keep_latest"}
                told = ", ".join(f"{key}={value}" for key, value in preset.items())
                arguments = tuple(
                    replace(a, default=preset.get(a.name, a.default)) for a in Dispatch.arguments
                )
                name = f"{load}{word}_{end}"
                yield type(
                    "".join(part.title() for part in name.split("_")),
                    (Dispatch,),
                    {
                        "__doc__": f"Dispatch with {told}.",
                        "__module__": __name__,
                        "name": name,
                        "summary": f"dispatch with {told}.",
                        "preset_of": Dispatch.name,
                        "arguments": arguments,
                    },
                )


PRESETS: tuple[type[Dispatch], ...] = tuple(_presets())
