"""change-table: what becomes of events of a table that this node refuses."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedur.catalog.tables import change_table_attr, get_table_list
from vedur.change.attrs import ON_ERROR
from vedur.change.quarantine import Policy
from vedur.errors import UsageError
from vedur.ops.session import Session, choose

log = logging.getLogger(__name__)

#: Takes a table's own policy away: the ini decides again.
DEFAULT = "default"


def check_policy(text: str) -> str:
    """Return the text if it is one of the policies; raises an error that names them if it is
    not."""
    words = [*map(str, Policy), DEFAULT]
    if text not in words:
        raise UsageError(f'--on-error is one of {", ".join(words)}, not "{text}"')
    return text


def change_table(session: Session, asked: Sequence[str], on_error: str | None) -> None:
    """Give local tables a policy of their own; stored with the table, seen by the next batch."""
    session.require_node()
    if on_error is None:
        raise UsageError("change-table needs --on-error=POLICY, use --help for help")
    policy = check_policy(on_error)
    tables = get_table_list(session.db, session.queue).local.names
    value = None if policy == DEFAULT else policy
    for name in choose(asked, tables):
        change_table_attr(session.db, session.queue, name, ON_ERROR, value)
        log.info("%s: on_error is %s", name, policy)
