"""takeover --abort: the old root takes writes again.

Until the promotion that is what an error does by itself (`run.py`). The epoch that was prepared is
barred on the new root first: a command that hangs somewhere cannot promote it any more. A root that
was replaced, by that takeover or by a failover, stays closed: `find_rival` looks at all members,
those that are called dead among them.

Where the new root is gone for good (--dead) nothing can be barred, and nothing tells whether it was
promoted. Then the old root goes on under an epoch of its own (`vedur.keep_root`), so that nobody
takes the other one for its successor. All other nodes must answer or be named then: one of them may
have followed the successor.

A failover that has promoted nobody is undone, too: the tags of the root go.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from vedur.db import Database, command
from vedur.errors import ConnectError, RefusedError, StateError, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import keeps_epochs, read_deposed
from vedur.node.move_lock import try_lock_move, unlock_move
from vedur.node.plan import Member
from vedur.node.position import lock_position
from vedur.node.setup import register_location, untag
from vedur.node.takeover import Note, find_heirs, find_rival, read_note, replaced
from vedur.ops.members import Answering, SetView, read_member, read_members
from vedur.ops.session import Session
from vedur.ops.takeover.note import require_note, set_note
from vedur.ops.takeover.options import TakeoverOptions, run_hook
from vedur.sql import query

log = logging.getLogger(__name__)

_PROBE_SECONDS = 3


def reopen(session: Session, root: Database, new: Database, old: str, note: Note) -> None:
    """Open a root again that was closed for a takeover; raises where the new root is promoted."""
    _bar(session, new, note)
    with root.transaction():
        if keeps_epochs(root):
            command(root, "vedur.reopen_root", session.queue, node=old)
        else:
            root.execute(query("takeover", "reopen"), [session.queue])
        require_note(root, session.queue, old, note)
        set_note(root, session.queue, None)
    reach("takeover.reopened")


def _bar(session: Session, new: Database, note: Note) -> None:
    """Bar the epoch of a takeover, before anything is opened: a command that hangs cannot promote
    the new root after this."""
    try:
        command(new, "vedur.bar_epoch", session.queue, note.epoch, quiet=True)
    except RefusedError as refused:
        raise StateError(
            f'"{note.to}" is the root already ({refused.message}): run the same takeover again '
            "without --abort, which finishes it or says what is to be done"
        ) from refused
    reach("takeover.barred")


def ask_again(session: Session, view: SetView) -> dict[str, Member]:
    """Ask the members again that answered; one that does so no longer tells nothing."""
    members = dict(view.members)
    for name, db in view.databases.items():
        try:
            members[name] = read_member(db, session.queue, name)
        except VedurError as error:
            log.debug('node "%s" was not asked again: %s', name, error)
            members[name] = replace(members[name], failure=mask(error.message))
    return members


def _ask_everybody(session: Session, view: SetView) -> tuple[SetView, dict[str, str]]:
    """Ask those, too, that are called dead: silence proves nothing, an answer does. Returns also
    the nodes whose servers answer and turn this command away, with the reason."""
    members, databases = ask_again(session, view), Answering(view.databases)
    refusing: dict[str, str] = {}
    for name, location in view.locations.items():
        if name in databases:
            continue
        try:
            endpoint = Endpoint.of_node(session.settings, location.node_location)
            db = session.open(endpoint.with_connect_timeout(_PROBE_SECONDS), f"node.{name}")
            found = read_member(db, session.queue, name)
        except VedurError as error:
            if not isinstance(error, ConnectError) or not (error.is_silent or error.is_shut):
                refusing[name] = mask(error.message)
            continue
        if found.answers:
            members[name], databases[name] = found, db
            log.info("'%s' answers, so it is asked", name)
    return SetView(view.local, members, databases, view.locations), refusing


def undo_takeover(session: Session, view: SetView, old: str, options: TakeoverOptions) -> None:
    """Undo a takeover that was begun: the old root takes writes again. With a successor that is
    gone for good (--dead) the old root is kept, under a new epoch."""
    tagged = _find_tagged(session, view, old)
    if tagged:
        view = _undo_failover(session, view, old, tagged, options)
        if not view.members[old].closed or options.dry_run:
            return  # a takeover was not begun before it
    root = view.members[old]
    if not root.answers:
        raise StateError(
            f'node "{old}" does not answer ({root.failure}): nothing is changed; start it, or, if '
            f"it is gone, run takeover {old} --dead-root"
        )
    note = read_note(root)
    here = view.locations[old].node_location
    if root.is_root and note is None and not root.closed and session.settings.takeover_hook:
        # one that was killed before it closed anything, or after it had opened it again
        log.info("'%s' takes writes: there is nothing to undo but what the hook has done", old)
        if not options.dry_run:
            hook_abort(session, old, options.node or view.local, here, options)
        return
    new = _successor(session, view, root, note)
    if options.node is not None and options.node != new:
        raise StateError(f'"{old}" is closed for a takeover by "{new}", not "{options.node}"')
    view, refusing = _ask_everybody(session, view)
    rival = find_rival(view.members, old)
    if rival is not None and (rival.root in view.databases or rival.root not in view.members):
        raise StateError(replaced(old, rival, note))
    gone = [
        n for n in dict.fromkeys((new, rival.root if rival else new)) if n not in view.databases
    ]
    _require_gone(view, gone, refusing, options)
    if gone:
        _require_named(view, old)
    if rival is not None:
        _require_no_heir(view, old, rival.root)
    if options.dry_run:
        log.info('"%s" would take writes again', old)
        return
    if gone or note is None:
        if note is not None and new in view.databases:
            _bar(session, view.databases[new], note)
        _keep(session, view, old, gone, note)
    else:
        reopen(session, view.databases[old], view.databases[new], old, note)
        log.info("'%s' takes writes again: the takeover by '%s' is undone", old, new)
    hook_abort(session, old, new, here, options)


def _find_tagged(session: Session, view: SetView, old: str) -> list[str]:
    """Return the nodes that were told that a root is gone, and read no more from it."""
    asked = [session.queue, old]
    return [n for n, db in view.databases.items()
            if n != old and db.value(query("worker", "is_tagged_dead"), asked)]  # fmt: skip


def _undo_failover(
    session: Session, view: SetView, old: str, tagged: list[str], options: TakeoverOptions
) -> SetView:
    """Undo a failover that has promoted nobody: the root is back, and the others read on from it.
    Whoever promotes looks at the tag under the same lock."""
    whole, _ = _ask_everybody(session, view)
    root = whole.members[old]
    if not root.answers:
        raise StateError(
            f'node "{old}" is tagged as dead, and does not answer: nothing is changed; takeover '
            f"{old} --dead-root goes on without it"
        )
    if not root.is_root:
        raise StateError(
            f'node "{old}" is a {root.type}, tagged as dead: there is no takeover to undo; if it '
            f'is back, run "tag-alive {old}"'
        )
    rival = find_rival(whole.members, old)
    if rival is not None:
        raise StateError(replaced(old, rival, read_note(root)))
    _require_named(whole, old)
    if options.dry_run:
        log.info("The tag of '%s' would be taken away on: %s", old, ", ".join(sorted(tagged)))
        return whole
    with ExitStack() as stack:
        for name, db in sorted(whole.databases.items()):
            if not try_lock_move(db, session.queue):
                raise StateError(
                    f'another command moves node "{name}" just now: wait for it to end'
                )
            stack.callback(unlock_move, db, session.queue)
        for name in tagged:
            with whole.databases[name].transaction():
                lock_position(whole.databases[name], session.queue, whole.members[name].worker)
                untag(whole.databases[name], session.queue, old, node=view.prefix(name))
            reach("takeover.untagged")
    log.info("'%s' is no longer tagged as dead: the other nodes read on from it", old)
    return read_members(session, options.dead)


def _successor(session: Session, view: SetView, root: Member, note: Note | None) -> str:
    """Return the node that was to take over from a root, or has done it."""
    if not root.is_root:
        raise StateError(
            f'node "{root.name}" is a {root.type} now: the takeover is done; the way back is '
            f"takeover {root.provider} --node={root.name}"
        )
    by = read_deposed(view.databases[root.name], session.queue)
    if note is None and by is None:
        raise StateError(
            f'node "{root.name}" is not closed for a takeover: there is nothing to undo'
        )
    name = note.to if note is not None else by.root if by is not None else ""
    if name not in view.members:
        raise StateError(
            f'"{root.name}" is closed for "{name}", which is no member: nothing is changed'
        )
    return name


def _require_gone(
    view: SetView, names: list[str], refusing: dict[str, str], options: TakeoverOptions
) -> None:
    for name in names:
        if name in refusing:
            raise StateError(
                f'the server of "{name}" answers, and refuses this command ({refusing[name]}): it '
                "may be root; nothing is changed; let the command in, or stop that server"
            )
        if name not in options.dead and not view.members[name].dead:
            raise StateError(
                f'"{name}" does not answer, and may be root already: nothing is changed; if it is '
                f"gone for good, say --dead={name}"
            )


def _require_named(view: SetView, old: str) -> None:
    """Raise where a node is silent and nobody says that it is gone: it may have followed the root
    that is, and be the only one that has what that one wrote."""
    silent = sorted(m.name for m in view.members.values() if not m.answers and not m.dead)
    if silent:
        raise StateError(
            f"nodes do not answer: {', '.join(silent)}: nothing is changed; one of them may have "
            f'followed a root that has replaced "{old}": start them, or name them with --dead'
        )


def _require_no_heir(view: SetView, old: str, root: str) -> None:
    """Raise where a branch has what a root that is gone has written: it can take over from that
    one, and nothing of it is lost then."""
    heirs = find_heirs(view.members, old)
    branches = [member.name for member in heirs if member.is_branch]
    if branches:
        raise StateError(
            f'"{branches[0]}" has followed "{root}", which has replaced "{old}": nothing is '
            f"changed; run takeover {root} --dead-root --node={branches[0]}, then resurrect with "
            f'the ini of "{old}"'
        )
    for member in heirs:
        log.warning(
            "'%s' has applied what '%s' wrote as root: run rejoin --apply there", member.name, root
        )


def _keep(session: Session, view: SetView, old: str, gone: list[str], note: Note | None) -> None:
    """Open a root whose successor is gone. Nobody can bar the epoch there: so the old root begins a
    reign of its own, and a successor that comes back is refused by all who follow this one."""
    db, queue = view.databases[old], session.queue
    with db.transaction():
        if note is not None:
            require_note(db, queue, old, note)
        if keeps_epochs(db):
            command(db, "vedur.keep_root", queue, node=old)
        else:
            db.execute(query("takeover", "reopen"), [queue])
        set_note(db, queue, None)
        for name in gone:
            register_location(db, queue, name, None, True, quiet=True)  # an event for all nodes
    reach("takeover.kept")
    log.info(
        "'%s' takes writes again, under a new epoch: if %s comes back, run resurrect there",
        old,
        " or ".join(f"'{name}'" for name in gone) or "its successor",
    )


def hook_abort(
    session: Session, old: str, new: str, location: str, options: TakeoverOptions
) -> None:
    """Let the hook undo what it has done before; that the root is open again stands, whatever
    becomes of it."""
    try:
        run_hook(session.settings, "abort", old, new, location, options.timeout)
    except StateError as error:
        log.error(
            '"%s" takes writes, but its applications may still be held back: %s; run takeover %s '
            "--abort again, which runs it again",
            old,
            error.message,
            old,
        )
