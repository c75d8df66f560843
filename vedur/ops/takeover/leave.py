"""A root reads from nobody: what other nodes still keep for it as a reader is ended.

A place that nobody reads from stands still, and what it keeps is kept by every node of the set, as
the watermark of the root follows the slowest reader.
"""

from __future__ import annotations

import logging

from vedur.errors import DatabaseError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.info import get_node_info, get_subscriber_info
from vedur.node.setup import unregister_subscriber
from vedur.ops.members import SetView
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def end_subscriptions(session: Session, view: SetView, root: str) -> None:
    """End the subscriptions of a root on all nodes that answer; one that does not is named. The
    caller has locked the root (`lock_move`), so that it stays root meanwhile."""
    info = get_node_info(view.databases[root], session.queue)
    if info is None or not info.is_root:
        return  # another command has moved the root on: its places are not ours to end
    for name, member in sorted(view.members.items()):
        if name == root or member.dead:
            continue
        if name not in view.databases:
            _warn(name, root, member.failure)
            continue
        try:
            db = view.databases[name]
            if root in [item.node_name for item in get_subscriber_info(db, session.queue)]:
                unregister_subscriber(db, session.queue, root, node=view.prefix(name))
                reach("takeover.left")
        except DatabaseError as error:
            _warn(name, root, mask(error.message))


def _warn(name: str, root: str, why: str) -> None:
    log.warning(
        "Node '%s' may keep a subscription of '%s', which holds back its queue: run the same "
        "command again when it answers (%s)",
        name,
        root,
        why,
    )
