"""What a branch passes on of a table of which it publishes a part: chosen among the raw events.

The choice is made in the transaction of the batch, before the events are applied: then the table
has the rows that the nodes below have, and an update can be told for what it is to them. A row that
is here and stays is updated; one that comes is inserted; one that leaves is deleted. Within the
range the events themselves tell what became of a row. The condition is the server's to evaluate, as
it is when changes are merged.

Where the rows here are not those of the nodes below (the table is being copied, or events of it
are in quarantine), more is passed on than is needed and nothing less: an update of a row in the
part stays an update, one of any other row is a delete. Nodes of Vedur's, which have the same
condition, make the same of that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vedur.change.event import EventType, parse_type
from vedur.db import Database
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.pipeline.replay.forward import RawEvents
from vedur.sql import query
from vedur.tables.mapping import PassedOn, TableMap, TableSpec

_JSON_NAMES = {"I": "INSERT", "D": "DELETE"}


@dataclass
class PublishedParts:
    """The raw events of a batch, and the tables that a branch publishes a part of."""

    db: Database
    queue: str
    stage: str  # quoted
    tables: Sequence[PassedOn]
    load_specs: Callable[[Iterable[TableMap]], dict[str, TableSpec]]

    def choose(self, raw: RawEvents, after: int, until: int) -> RawEvents:
        """Take out, and write anew, events between two that are not passed on as they are; returns
        what is left."""
        dropped = 0
        for item in self.tables:
            where = {
                "slices": list(raw.slices),
                "table": item.table.name,
                "after": after,
                "until": until,
            }
            text = query("publish", "types_in_part").format(raw=self.stage)
            types = [row.ev_type for row in self.db.query(text, where)]
            said = {text: parse_type(text) for text in types}
            changes = {text: kind for text, kind in said.items() if kind.op != "-"}
            if changes:
                dropped += self._choose(item, changes, where)
        return replace(raw, events=raw.events - dropped)

    def _choose(self, item: PassedOn, changes: dict[str, EventType], where: dict[str, Any]) -> int:
        """Choose among the events of one table; returns how many were taken out."""
        spec = self._spec(item.table)
        if any(said.op != "R" and not said.keys for said in changes.values()):
            raise StateError(
                f'table "{spec.name}": the provider\'s trigger does not write whole rows with '
                "their key, so a branch cannot tell which of them are its part: remove the table "
                "on the root and add it again with event_format = json"
            )
        keys = {said.keys for said in changes.values() if said.op != "R"}
        # Rows whose key has become another one within the range cannot be followed.
        followed = next(iter(keys), ()) if item.known and len(keys) < 2 else ()
        row = self.db.one(_statement(spec, self.stage, followed), {
            **where,
            "types": list(changes),
            "ops": [said.op for said in changes.values()],
            "inserts": [_as(text, said, "I") for text, said in changes.items()],
            "deletes": [_as(text, said, "D") for text, said in changes.items()],
            "encoded": [said.format == "urlenc" for said in changes.values()],
            "keys": [json.dumps(said.keys) for said in changes.values()],
            "truncates": "R" in item.table.operations,
            "extra3": item.table.publish.extra3 if item.table.publish is not None else None,
            "columns": list(spec.looks_at),
        })  # fmt: skip
        if row.lacking is not None:
            raise StateError(f'[ev_id={row.lacking}] table "{spec.name}": ' + _lacks(spec))
        return int(row.dropped)

    def _spec(self, table: TableMap) -> TableSpec:
        """Look at the table as it is now: a script may have given it another name, or columns."""
        rows = self.db.query(query("replay", "dest_names"), [self.queue])
        now = {row.table_name: row.dest_table for row in rows}
        spec = self.load_specs([replace(table, dest=now.get(table.name, table.dest))])[table.name]
        if not spec.columns:
            raise StateError(
                f'table "{table.dest}" does not exist here, so this branch cannot tell which '
                f'events of table "{table.name}" are its part: create it, or remove-table it here'
            )
        return spec


def _statement(spec: TableSpec, stage: str, keys: tuple[str, ...]) -> str:
    """Return the statement for a table; without `keys`, rows are not followed."""
    columns = [f"{quote_ident(c.name)} {c.type}" for c in spec.stage_columns]
    match = " and ".join(f"d.{quote_ident(name)} = p.k{at}" for at, name in enumerate(keys))
    here = f"exists (select 1 from {spec.only} {spec.dest} d where {match})"
    words = {
        "raw": stage,
        "columns": ", ".join(columns),
        "alias": spec.alias,
        "condition": spec.condition,
        "values": "".join(f", {quote_ident(name)} as k{at}" for at, name in enumerate(keys)),
        "keys": ", ".join(f"s.k{at}" for at in range(len(keys))) or "s.ev_id",
        "before": query("publish", "row_before").format(here=here) if keys else "null::boolean",
    }
    return query("publish", "choose_part").format(
        **{name: str(word).replace("%", "%%") for name, word in words.items()}
    )


def _as(ev_type: str, said: EventType, op: str) -> str:
    """Return the type of an event as that of another operation."""
    if said.format != "json":
        return op + ev_type[1:]
    return json.dumps({**json.loads(ev_type), "op": _JSON_NAMES[op]}, ensure_ascii=False)


def _lacks(spec: TableSpec) -> str:
    condition = " ".join((spec.condition or "").split())
    return f"the event lacks a column of the condition: {condition}"
