"""Which events the queue of a branch lacks: of some tables it passes on a part only.

A branch leaves out events of rows for which a condition does not hold, where the condition looks at
nothing but the key: what becomes of an event then depends on the event alone, and not on what this
node or one below it has. It notes that in the transaction of the batch (`vedur.passed_part`), so
whoever has opened a batch there and asks afterwards hears of all that may be missing in it.
`worker/branch_queue.py` writes, `catalog/passed.py` judges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.names import quote_ident
from vedur.sql import query


@dataclass(frozen=True, slots=True)
class PassedPart:
    """Of a table only events of rows are passed on for which a condition holds; `until` is the last
    tick of which that is so, None while it goes on."""

    table: str
    condition: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a branch leaves out itself: of table `table`, which is `dest` (quoted) here, events of
    rows for which `condition` does not hold; `written` is the condition under the alias t, and
    `columns` are those that it looks at."""

    table: str
    dest: str
    condition: str
    written: str
    columns: tuple[str, ...]


#: What a server says of an event, a value or a condition that it cannot do with; not of itself.
_OF_THE_EVENT = ("22", "42", "XX001")

_tells: WeakKeyDictionary[Database, bool] = WeakKeyDictionary()


def read_passed_parts(db: Database, queue: str, tick: int) -> list[PassedPart]:
    """Read which parts of tables the queue of a node passes on behind a tick; none where all events
    are there, or where the node's SQL leaves none out. Ask after the batch was opened."""
    if not _tells.get(db):  # it may come while this session lasts
        _tells[db] = bool(db.value(query("publish", "has_parts")))
        if not _tells[db]:
            return []
    rows = db.query(query("publish", "passed_parts"), [queue, tick])
    return [PassedPart(r.table_name, r.condition, r.until_tick) for r in rows]


def note_passed_parts(db: Database, queue: str, tick: int, parts: Collection[PassedPart]) -> None:
    """Write which parts the batch has that begins at a tick, in its transaction; what is not among
    them ends there."""
    columns = ([p.table for p in parts], [p.condition for p in parts], [p.until for p in parts])
    db.value(query("publish", "note_parts"), [queue, tick, *columns])


def leave_out(
    db: Database, queue: str, slot: int, slices: Sequence[int], rules: Collection[LeftOut]
) -> int:
    """Take out of a staged batch what is not to be published, in its transaction; returns how many
    events. The conditions run as the role of the worker."""
    stage = str(db.value(query("publish", "create_stage"), [queue, slot]))
    asked = {"slices": list(slices), "tables": [rule.table for rule in rules]}
    found = db.query(query("publish", "changed_tables").format(stage=stage), asked)
    names = {row.name for row in found}
    return sum(_leave_out(db, stage, slices, rule) for rule in rules if rule.table in names)


def _leave_out(db: Database, stage: str, slices: Sequence[int], rule: LeftOut) -> int:
    types = db.query(query("publish", "column_types"), [rule.dest, list(rule.columns)])
    row = ", ".join(f"{quote_ident(t.name)} {t.type}" for t in types)
    text = query("publish", "leave_out").format(
        stage=stage, condition=_escaped(rule.written), row=_escaped(row)
    )
    values = {"slices": list(slices), "table": rule.table, "columns": list(rule.columns)}
    try:
        return db.execute(text, values)
    except DatabaseError as error:
        if not (error.sqlstate or "").startswith(_OF_THE_EVENT):
            raise
        raise StateError(
            f'table "{rule.table}": it cannot be told which events are those of rows where '
            f"{rule.condition}: {error.message}: nothing is applied and nothing passed on; "
            "change-handler with --handler-arg=pass_on=all passes all of them on"
        ) from error


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
