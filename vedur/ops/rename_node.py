"""rename-node: give a node another name, on every node of the set, while everything runs.

Three steps, and every node has done one before the first node does the next: both names are known
and the provider keeps a watermark for both; the node and those that read from it use the new name;
the old name is forgotten. Whatever a worker reports meanwhile is understood under either name. A
command that was killed is finished by running it again.
"""

from __future__ import annotations

import logging
from urllib.parse import urlencode

from vedur.catalog.tables import change_table_attr, get_table_list
from vedur.change.attrs import COPY_NODE
from vedur.db import Database, command
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.node.info import SYNC_WATERMARK, get_node_info, synced_nodes
from vedur.node.plan import MOVE_PROVIDER, TAKEOVER_TO, children_of, parents_of, plan_rename
from vedur.node.setup import (
    is_told_to_forget,
    register_location,
    set_node_attrs,
    unregister_location,
)
from vedur.ops.members import SetView, read_members
from vedur.ops.session import Session
from vedur.sql import query

log = logging.getLogger(__name__)


def rename_node(session: Session, old: str, new: str) -> None:
    """Rename a node on all nodes."""
    view = read_members(session)
    order = plan_rename(view.members, old, new)
    _require_forgotten(view, session.queue, new)
    databases = {name: view.databases[name] for name in order}
    ours = {name for name, db in databases.items() if db.value(query("node", "can_rename"))}
    _require_ours(view, old, new, ours)
    for name, db in databases.items():
        if name in ours:
            _step(view, session.queue, name, db, (old, new), 1)
        else:
            there = view.locations[old]
            register_location(db, session.queue, new, there.node_location, there.dead, node=name)
        reach("rename.announced")
    for name, db in databases.items():
        if name in ours:
            _step(view, session.queue, name, db, (old, new), 2)
        _rename_in_attrs(db, session.queue, old, new)
        _rename_copy_node(db, session.queue, old, new)
        reach("rename.switched")
    for name, db in databases.items():
        if name in ours:
            _step(view, session.queue, name, db, (old, new), 3)
        else:
            unregister_location(db, session.queue, old, node=name)
        reach("rename.forgotten")
    log.info("Node '%s' is '%s' now; change node_name in its INI if it is there", old, new)


def _require_forgotten(view: SetView, queue: str, new: str) -> None:
    """Raise while a node has yet to read that an earlier node of the new name left the set."""
    behind = {m.name: m.tick for m in view.members.values() if m.tick is not None and not m.is_root}
    root = next((m.name for m in view.members.values() if m.is_root), None)
    if root is None or not behind:
        return
    first = min(behind, key=lambda name: behind[name])
    if is_told_to_forget(view.databases[root], queue, new, behind[first] or 0):
        raise StateError(
            f'not every node has read yet that an earlier node "{new}" left the set ("{first}" is '
            f"at tick {behind[first]}): nothing is changed; run it again when they have"
        )


def _require_ours(view: SetView, old: str, new: str, ours: set[str]) -> None:
    """Raise unless the node, its provider and its children all have Vedur's function: they keep the
    name in more places than the contract's functions can change."""
    says = view.members[old].says
    near = {says, *parents_of(view.members, old), *parents_of(view.members, new)}
    near |= {*children_of(view.members, old), *children_of(view.members, new)} - {old, new}
    lacking = sorted(name for name in near - ours if name in view.databases)
    if lacking:
        raise StateError(
            f"{', '.join(lacking)} has no function vedur.rename_node: nothing is changed; install "
            "this version of Vedur's SQL there first (create-leaf or create-root with its name)"
        )


def _rename_in_attrs(db: Database, queue: str, old: str, new: str) -> None:
    """Put the new name into attributes that name nodes: whose queues are held, and where a move or
    a takeover that was interrupted leads."""
    info = get_node_info(db, queue)
    attrs = {} if info is None else info.attrs
    renamed = dict(attrs)
    if SYNC_WATERMARK in attrs:
        names = synced_nodes(attrs)
        if old in names:
            renamed[SYNC_WATERMARK] = ",".join(new if name == old else name for name in names)
    for key in (MOVE_PROVIDER, TAKEOVER_TO):
        if attrs.get(key) == old:
            renamed[key] = new
    if renamed != attrs:
        set_node_attrs(db, queue, urlencode(renamed), quiet=True)


def _rename_copy_node(db: Database, queue: str, old: str, new: str) -> None:
    """Put the new name into tables that are copied from the node."""
    if not db.value(query("admin", "has_schema"), ["londiste"]):
        return
    for table in get_table_list(db, queue).local:
        if table.copy_node == old:
            change_table_attr(db, queue, table.table_name, COPY_NODE, new)


def _step(
    view: SetView, queue: str, name: str, db: Database, names: tuple[str, str], step: int
) -> None:
    args = (queue, *names, step)
    command(db, "vedur.rename_node", *args, node=view.prefix(name), quiet=True)
