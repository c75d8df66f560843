"""`qsplitter`: events of a table go into another queue of the node, as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from vedur.errors import StateError
from vedur.handlers.api import Argument, Event, Handler, Scope, Statement
from vedur.names import quote_literal
from vedur.sql import query


class QueueSplitter(Handler):
    """Events of one table as events of another queue."""

    name = "qsplitter"
    summary = "Puts the events of the table into another queue of this node; it has no rows here."
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("queue", "the queue, which must be there", required=True),
    )
    needs_table = False

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return `virtual_table`: there is no table to put triggers on."""
        return ("virtual_table",)

    def facts_query(self) -> str:
        """Return the query whether there is such a queue, and whose it is."""
        return query("admin", "queue_to_fill").format(queue=quote_literal(self.given["queue"]))

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Refuse a queue that is not there, or that only its set may fill."""
        queue = self.given["queue"]
        there, node_type = (facts or (False, None))[:2]
        if not there:
            raise StateError(
                f'there is no queue "{queue}" on this node: create it (pgq.create_queue)'
            )
        if node_type not in (None, "root"):
            raise StateError(
                f'queue "{queue}" is that of a set, and this node is no root of it: events of its '
                "own would be lost or come twice below"
            )
        return Scope(uncomparable="its events go into another queue, it has no rows here")

    def statements(self, event: Event, tick: int | None, dest: str) -> Sequence[Statement]:
        """Insert the event with the time that it has; one from the quarantine has none any more."""
        return [
            (
                query("admin", "pass_event"),
                (
                    self.given["queue"], event.ev_time, event.ev_type, event.ev_data,
                    event.ev_extra1, event.ev_extra2, event.ev_extra3, event.ev_extra4,
                ),
            )
        ]  # fmt: skip
