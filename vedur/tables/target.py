"""Where rows go that a handler does not leave in the table itself. Values that travel by pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vedur.errors import StateError

Period = Literal["hour", "day", "month", "year"]
#: What tells the time of a change: its event, its batch, the clock when it is applied.
Moment = Literal["event", "batch", "now"]
#: What an update does: `plain` changes the row, `keep_latest` puts the new one in the place of the
#: old one or where there is none, `keep_all` adds it, and nothing is ever deleted.
RowMode = Literal["plain", "keep_latest", "keep_all"]

#: A column of staged changes and of events: the time that chooses the partition.
PART = "vedur_part"

_FIELDS = {"year": 4, "month": 7, "day": 10, "hour": 13}
_TIME = re.compile(r"(timestamp(\(\d\))? with(out)? time zone|date)$")
_USUAL = "londiste.create_partition"
_START = "0001-01-01 00:00:00"


@dataclass(frozen=True)
class Partitions:
    """Rows go to tables by time, which are made when the first row of a period comes.

    With `field`, a column of the table here, its value decides; then the tables are partitions of
    the table, declared or by inheritance, and a row is in one of them. Without it `moment`
    decides, which a row does not tell: each period has the rows as they were left by the changes
    of that period. `name` is the pattern of their names; `function`, `template`, `before` and
    `after` are how they are made, see `vedur.make_partition`. Those older than `retention` are
    dropped when another one is made; `ignore_old`: what would go there is left out.
    """

    period: Period
    name: str
    field: str | None = None
    moment: Moment = "batch"
    row_mode: RowMode = "plain"
    function: str = _USUAL
    template: str | None = None
    before: str | None = None
    after: str | None = None
    retention: str | None = None
    ignore_old: bool = False

    @property
    def usual(self) -> bool:
        """Are they made by Vedur's own way, and not by an operator's?"""
        return self.template is None and self.function.replace('"', "") == _USUAL

    @property
    def by_event(self) -> bool:
        """Does the time of each event decide?"""
        return self.field is None and self.moment == "event"

    def start(self, moment: str) -> str:
        """Return the beginning of the period that a time (`YYYY-MM-DD HH:MI:SS`) is in."""
        length = _FIELDS[self.period]
        return moment[:length] + _START[length:]

    def as_json(
        self,
        unique_keys: Sequence[Collection[str]] = (),
        columns: Sequence[str] = (),
        *,
        drop: bool = True,
    ) -> str:
        """Return what `vedur.make_partition` needs: also a key of the table, for partitions that do
        not get one from it. `drop`: where one is made, old ones go."""
        key = min((set(key) for key in unique_keys), key=sorted, default=set())
        keys = [name for name in columns if name in key]
        words = {
            "period": self.period,
            "name": self.name,
            "field": self.field,
            "keys": "" if self.row_mode == "keep_all" else ",".join(keys),
            "function": self.function,
            "template": self.template,
            "before": self.before,
            "after": self.after,
            "retention": self.retention,
            "drop": drop,
            "ignore_old": self.ignore_old,
        }
        return json.dumps(words)


def require_partitions(
    table: str, target: Partitions, types: Mapping[str, str], partitioned: bool, keyed: bool
) -> None:
    """Raise StateError for a table here that cannot be spread over partitions; `types` are those of
    its columns, by name."""
    field = target.field
    problem = ""
    if PART in types:
        problem = f'column "{PART}" has a name that is needed while changes are on their way'
    elif field is not None and field not in types:
        problem = f'it has no column "{field}" (part_field)'
    elif field is not None and not _TIME.match(types[field]):
        problem = (
            f'column "{field}" (part_field) is of type {types[field]}, and a partition is chosen '
            "by a date or a timestamp"
        )
    elif field is not None and types[field] == "date" and target.period == "hour":
        problem = f'column "{field}" (part_field) is a date, which has no hours: use period=day'
    elif field is None and partitioned:
        problem = (
            "it is a partitioned table, so a column of its own must decide on the partition: use "
            "part_mode=date_field"
        )
    elif partitioned and target.ignore_old:
        problem = (
            "it is a partitioned table, which refuses rows without a partition: ignore_old_events "
            "is for tables with partitions that inherit from it"
        )
    elif target.row_mode == "keep_all" and keyed:
        problem = (
            "it has a primary key or a unique index, and row_mode=keep_all brings a key more than "
            "once: drop it here"
        )
    elif target.row_mode != "keep_all" and not keyed:
        problem = "it needs a primary key, which its partitions get from it"
    if problem:
        raise StateError(f'table "{table}" cannot be spread over partitions: {problem}')
