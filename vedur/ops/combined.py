"""What commands may do to a part of a combined queue, and to a node that parts are merged into.

Rows of a part come to the nodes below the combined queue by events alone. So whatever writes rows
of it on the combined root in another way, as a first copy does, may only be done while nobody below
has the table. And on a combined branch the part brings no rows at all: what is about rows is asked
of the combined queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from vedur.catalog.tables import TableInfo, get_table_list, global_add_table, local_add_table
from vedur.change.attrs import MAX_PARALLEL_COPY, MERGE, PART_COLUMN, decode_attrs, encode_attrs
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.log import mask
from vedur.node.info import NodeInfo, NodeType, get_node_info, get_queue_locations
from vedur.ops.session import Session


def waits_behind(info: NodeInfo) -> bool:
    """Tell whether the rows of this part come through a combined queue, of which this is a branch.
    Pure."""
    return info.combined_queue is not None and info.combined_type == NodeType.BRANCH.value


def require_own_rows(info: NodeInfo, verb: str) -> None:
    """Raise where a command is about rows that come through a combined queue. Pure."""
    if waits_behind(info):
        raise StateError(
            f"{verb} is not for this part: its rows come through combined queue "
            f'"{info.combined_queue}", of which this node is a branch; nothing is changed: run it '
            f'with the ini of "{info.combined_queue}"'
        )


def require_unmerged(info: NodeInfo, verb: str) -> None:
    """Raise where a command would move the position, or mend the rows, of a part or of a node that
    parts are merged into: events would be merged twice, or nodes below miss rows. Pure."""
    if info.combined_queue is not None:
        raise StateError(
            f"{verb} is not for this node: it is merged into combined queue "
            f'"{info.combined_queue}", whose nodes would miss what it mends, or get changes twice; '
            "nothing is changed: drop-node it, create it again, and add its tables again (one that "
            "other parts bring, too: remove-table it of all of them first, then --merge-all)"
        )
    if info.target_for:
        raise StateError(
            f"{verb} is not for this node while parts are merged into it "
            f"({', '.join(info.target_for)}): their positions would not fit its rows; nothing is "
            "changed: drop-node the parts here first, and create them again afterwards"
        )


def require_all_changes(info: NodeInfo) -> None:
    """Raise where other rows of a table are asked for on a part: all its changes go on into the
    combined queue, whatever becomes of them here. Pure."""
    if info.combined_queue is not None:
        raise StateError(
            f'this node is merged into combined queue "{info.combined_queue}", and all changes of '
            "a table go on there: a condition, a column list, a part column or another handler "
            "cannot be had here; nothing is changed; give it to the nodes below"
        )


def require_no_part_column(table: TableInfo, verb: str) -> None:
    """Raise where a command would move rows of a table whose part a column tells. Pure."""
    if PART_COLUMN in table.attrs:
        raise StateError(
            f'{verb} is not for table "{table.table_name}", whose rows a part column tells: '
            "nothing is changed; remove-table it here, which leaves its rows, and add-table it "
            "again with what is wanted: its copy removes the rows of this part, and no others"
        )


def require_nobody_below(
    session: Session,
    info: NodeInfo,
    tables: Iterable[str],
    what: str = "a first copy",
    otherwise: str = "",
) -> None:
    """Raise where a first copy of a part, or a repair, would bring rows to the combined root that
    nodes which have the table already never get; a node that does not answer may have it."""
    combined = info.combined_queue
    if combined is None or info.combined_type != NodeType.ROOT.value:
        return
    wanted = set(tables)
    root = get_node_info(session.db, combined)
    own = root.node_name if root is not None else None  # not the part's: each queue has its names
    for member in get_queue_locations(session.db, combined):
        if member.node_name == own or member.dead:
            continue
        try:
            there = session.remote(member.node_location, f"combined.{member.node_name}")
            found = wanted & set(get_table_list(there, combined).local.names)
        except DatabaseError as error:
            raise StateError(
                f'node "{member.node_name}" of combined queue "{combined}" does not answer '
                f"({mask(error.message)}), and may have the table: nothing is changed; run it "
                "again when it answers, or drop it"
            ) from error
        if found:
            names = ", ".join(sorted(found))
            raise StateError(
                f'node "{member.node_name}" of combined queue "{combined}" has {names} already, '
                f"and rows that {what} brings here do not get into the queue: nothing is "
                "changed; remove-table it there, and add it again when this is done here"
                f"{otherwise}"
            )


def take_to_branch(
    db: Database, info: NodeInfo, table: str, words: list[str], attrs: str | None, dest: str | None
) -> None:
    """Take a table of a waiting part to the node as one of the combined queue, which copies it; in
    the transaction in which the part gets it. Its copy is one of all parts: nothing is merged."""
    assert info.combined_queue is not None
    known = get_table_list(db, info.combined_queue).find(table)
    if known is not None and known.local:
        return
    global_add_table(db, info.combined_queue, table)
    kept = [word for word in words if word not in ("expect_sync", "no_merge", "merge_all")]
    left = decode_attrs(attrs)
    stored = {key: left[key] for key in left if key not in (MERGE, MAX_PARALLEL_COPY)}
    local_add_table(db, info.combined_queue, table, kept, encode_attrs(stored), dest)
