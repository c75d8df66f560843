"""What a comparison has found, and the exit code and last line that follow from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vedur.errors import LaggingError

if TYPE_CHECKING:
    from vedur.pipeline.compare import Differences

#: Exit codes up to this are a number of tables that differ; an error's own code is added to
#: NOT_PROVEN (see `errors_from` of the command). 130 stays what a shell makes of ^C.
MAX_DIFFERENT, NOT_PROVEN = 99, 100
#: Tables that the last line names of each kind.
_NAMED = 10


class Status(StrEnum):
    """What is known of a table after a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class TableResult:
    """What a comparison of one table found."""

    table: str
    dest_table: str
    tick: int = 0
    lock_free: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    match: bool = False  # what was compared is equal
    differences: Differences | None = None
    quarantined: int = 0  # events of the table that wait in quarantine
    compared: bool = True
    reason: str = ""  # why it was not compared, or not whole
    node: str = ""  # compared with this one; empty for the provider

    @property
    def status(self) -> Status:
        """A difference that was seen is one, whatever else was not looked at."""
        if self.compared and not self.match:
            return Status.DIFFERENT
        return Status.NOT_PROVEN if self.reason else Status.EQUAL

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = {**asdict(self), "status": self.status.value}
        if self.differences is None:
            del found["differences"]
        return found


@dataclass(frozen=True)
class CompareResult:
    """All tables, in their order; `elsewhere` counts those that the provider has beside."""

    tables: tuple[TableResult, ...] = field(default=())
    elsewhere: int = 0
    lagging: bool = False

    @property
    def bad(self) -> int:
        """How many tables differ."""
        return len(self.named(Status.DIFFERENT))

    @property
    def exit_code(self) -> int:
        """0 if all are equal; else how many differ; else that some are not proven, and why."""
        if self.bad:
            return min(MAX_DIFFERENT, self.bad)
        if self.lagging:
            return NOT_PROVEN + LaggingError.exit_code
        return 0 if self.tables and not self.named(Status.NOT_PROVEN) else NOT_PROVEN

    def named(self, status: Status) -> list[str]:
        """Local names of tables of which that is known."""
        return [t.dest_table for t in self.tables if t.status is status]

    def summary(self, counted: bool = False) -> str:
        """The last line; `counted`: only numbers of rows were compared."""
        parts = []
        equal = "with equal numbers of rows" if counted else "equal"
        for status, word in (
            (Status.EQUAL, equal),
            (Status.DIFFERENT, "different"),
            (Status.NOT_PROVEN, "not proven equal"),
        ):
            names = self.named(status)
            if names or status is Status.EQUAL:
                said = "" if status is Status.EQUAL else f" ({listed(names)})"
                parts.append(f"{len(names)} {word}{said}")
        text = f"Compared {_tables(len(self.tables))}: {', '.join(parts)}"
        if self.elsewhere:
            text += f"; {_tables(self.elsewhere)} of the set not on this node"
        return text


def _tables(count: int) -> str:
    return f"{count} table" if count == 1 else f"{count} tables"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
