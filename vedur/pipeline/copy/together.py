"""Tables of one slice that one job loads together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedur.db import Database, Row, connect, set_replication_role
from vedur.errors import VedurError
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.copy.load import LoadTask

#: Notices would end up between the blocks of data.
SESSION = "set client_min_messages = error"

#: Tables that the title of such a job names.
_TITLE_NAMES = 10


#: A commit that a crash takes back takes its slice back, too; whoever believes a slice to be done
#: commits later, and waits for the disk.
_WITHOUT_WAITING = "set synchronous_commit = off"


@dataclass(frozen=True, repr=False)
class LoadTogether:
    """The closure of a job for several tables of one slice: each is loaded as by its own task, one
    after the other on the same connections. A table that fails is left as it is."""

    tasks: tuple[LoadTask, ...]

    def __repr__(self) -> str:
        return f"LoadTogether({len(self.tasks)} tables)"

    def load(self) -> int:
        """Load what can be loaded; return how many tables that were, or raise the last error."""
        left = {task.table.table: task for task in self.tasks}
        first = self.tasks[0]
        loaded, failure = 0, None
        try:
            with connect(first.target, name="copy_target") as target:
                target.without_timeouts().execute(f"{SESSION}; {_WITHOUT_WAITING}")
                target.commit()
                with _Source(first) as source:
                    while (claimed := self._claim(target, left)) is not None:
                        task = left.pop(claimed.table_name)
                        try:
                            set_replication_role(target, "replica")
                            target.execute(query("copy", "rename_task"), [task.table.task_name])
                            task.load_claimed(target, claimed, source.at_snapshot)
                            loaded += 1
                        except VedurError as error:
                            failure = error
                            if target.closed:
                                break
                            target.rollback()
        except VedurError as error:
            failure = error
        if failure is not None:
            raise failure
        return loaded

    @staticmethod
    def _claim(target: Database, left: Mapping[str, LoadTask]) -> Row | None:
        """Claim the slice of one of the tables; None, and no transaction, where none is free."""
        if not left:
            return None
        queue = next(iter(left.values())).table.queue
        row = target.one(query("copies", "claim_slice"), {"queue": queue, "names": list(left)})
        if row is None:
            target.rollback()
        return row


class _Source:
    """A session on the provider that reads table after table, each in a transaction of its own,
    so that no table stays locked for longer than it is read."""

    def __init__(self, task: LoadTask) -> None:
        self.task = task
        self._db: Database | None = None

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._db is not None:
            self._db.close()

    def at_snapshot(self) -> Database:
        """Open a new transaction at the snapshot."""
        if self._db is None or self._db.closed:
            self._db = self.task.open_source()
            return self._db
        text = query("copy", "next_at_snapshot").format(snapshot=self.task.snapshot)
        self._db.execute(text)
        return self._db


def together_title(tables: Sequence[str]) -> str:
    """Return what Spark's pages call a load of several tables: a page is to say whose job it
    shows."""
    more = len(tables) - _TITLE_NAMES
    named = ", ".join(tables[:_TITLE_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"copy of {len(tables)} tables: {named}"
