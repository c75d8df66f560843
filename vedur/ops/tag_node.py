"""tag-dead and tag-alive: tell every node whether a member is gone.

Nobody connects to a node that is tagged as dead: commands and the status page do not wait for it,
and a worker whose provider it is applies nothing more, even if the node answers: another one may be
made root meanwhile. A tag that reaches it by way of that provider is old, and is left out
(worker/system_events.py). The tag changes nothing else: the subscription of the node holds back
the queue of its provider until the node is dropped, or comes back and is tagged as alive.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedur.errors import DatabaseError, StateError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.setup import register_location
from vedur.ops.members import read_members
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def tag_dead(session: Session, names: Sequence[str]) -> None:
    """Tag nodes as dead on every node that answers; the root tells the others."""
    _tag(session, names, dead=True)


def tag_alive(session: Session, names: Sequence[str]) -> None:
    """Take the tag away again."""
    _tag(session, names, dead=False)


def _tag(session: Session, names: Sequence[str], *, dead: bool) -> None:
    known = {member.node_name for member in session.members()}
    for name in names:
        if name not in known:
            raise StateError(f"Unknown node: {name}")
    local = session.require_node().node_name
    if dead and local in names:
        raise StateError(f'node "{local}" is the local one: run the command on another node')
    # whoever is to be tagged as dead is not waited for; whoever is alive again must be told itself
    view = read_members(session, names if dead else ())
    databases = dict(view.databases)
    word = "dead" if dead else "alive"
    for name in names:
        if not dead and name not in databases:
            databases[name] = session.remote(view.locations[name].node_location, f"node.{name}")
    root_told = False
    for name in names:
        log.info("Tagging node '%s' as %s", name, word)
        for other, db in databases.items():
            try:
                register_location(
                    db, session.queue, name, None, dead, node=view.prefix(other), quiet=True
                )
            except DatabaseError as error:
                log.warning("Node '%s' failure: %s", other, mask(error.message))
                continue
            root_told = root_told or view.members[other].is_root
            reach("tag.told")
    silent = sorted(view.members.keys() - databases.keys() - set(names))
    if silent:
        then = "the root tells them" if root_told else "run the same command there"
        log.warning("Not reached: %s: %s", ", ".join(silent), then)
