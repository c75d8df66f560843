"""What a root that is closed for a takeover says of it: written, and looked at again.

`vedur/node/takeover.py` reads it (`read_note`).
"""

from __future__ import annotations

from urllib.parse import urlencode

from vedur.db import Database
from vedur.errors import StateError
from vedur.node.info import get_node_info
from vedur.node.plan import (
    TAKEOVER_EPOCH,
    TAKEOVER_TICK,
    TAKEOVER_TIME,
    TAKEOVER_TO,
    TAKEOVER_TXID,
)
from vedur.node.setup import set_node_attrs
from vedur.node.takeover import Note, read_note
from vedur.ops.members import read_member

_NOTES = (TAKEOVER_TO, TAKEOVER_EPOCH, TAKEOVER_TXID, TAKEOVER_TIME, TAKEOVER_TICK)


def set_note(db: Database, queue: str, note: dict[str, str] | None, *, keep: bool = False) -> None:
    """Write what a closed root says of its takeover; None removes it."""
    info = get_node_info(db, queue)
    attrs = {} if info is None else dict(info.attrs)
    if not keep:
        for key in _NOTES:
            attrs.pop(key, None)
    attrs |= note or {}
    set_node_attrs(db, queue, urlencode(attrs) or None, quiet=True)


def require_note(root: Database, queue: str, old: str, note: Note) -> None:
    """Raise, in a transaction that has locked the node, unless it is still closed for the same
    takeover: somebody may have undone that one and begun another."""
    now = read_note(read_member(root, queue, old))
    if now is None or now.epoch != note.epoch:
        raise StateError(
            f'the takeover of "{old}" was undone meanwhile, or another one has begun: nothing more '
            "is changed"
        )
