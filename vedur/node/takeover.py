"""The plan of a takeover: what the nodes say, how far an earlier run came, what is left. Pure.

Nothing is remembered by the command itself. A root that is closed for a takeover says so in its
attributes (`TAKEOVER_TO` and its kin in `plan.py`), and the rest is seen from types, positions and
providers, so that the same command goes on where one was killed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from vedur.errors import StateError
from vedur.node.epoch import (
    Match,
    Reign,
    ReignKind,
    Reigns,
    last_reign,
    match_reigns,
    next_reign,
)
from vedur.node.plan import (
    MOVE_CONSUMER,
    TAKEOVER_EPOCH,
    TAKEOVER_TICK,
    TAKEOVER_TO,
    TAKEOVER_TXID,
    Member,
    Members,
    children_of,
    interrupted,
    parents_of,
    path_up,
    require_member,
)


class TakeoverProgress(IntEnum):
    """How far a takeover of a root has come, by what the two nodes say."""

    OPEN = 0  # nothing is closed
    CLOSED = 1  # the old root refuses writers
    TICKED = 2  # and has written its last tick
    PROMOTED = 3  # the new root is open; the old one is still to be turned
    DONE = 4


@dataclass(frozen=True)
class Note:
    """What a root that was closed for a takeover says of it."""

    to: str
    epoch: str
    txid: int
    tick: int | None = None


def read_note(member: Member) -> Note | None:
    """Return what a root says of a takeover that has closed it, None if it says nothing."""
    to, epoch = member.attrs.get(TAKEOVER_TO), member.attrs.get(TAKEOVER_EPOCH)
    if to is None or epoch is None:
        return None
    tick = member.attrs.get(TAKEOVER_TICK)
    return Note(to, epoch, int(member.attrs.get(TAKEOVER_TXID, "0")), int(tick) if tick else None)


def judge_progress(old: Member, new: Member) -> TakeoverProgress:
    """Tell how far a takeover of root `old` by `new` has come; raises for what is none of ours."""
    note = read_note(old)
    if old.is_root and note is not None and find_reign(new, note.epoch) is not None:
        return TakeoverProgress.PROMOTED
    if new.is_root:
        if old.provider == new.name:
            return TakeoverProgress.DONE
        if old.is_root and (_follows(old, new) or (new.reigns and not old.reigns)):
            raise StateError(replaced(old.name, Rival(new.name, new.name, last_reign(new.reigns))))
        if old.is_root and (by := ended_by(new, old)) is not None:
            raise StateError(f"{explain_unturned(new, by)}; nothing is changed")
        raise StateError(
            f'"{new.name}" is the root already, and "{old.name}" is '
            + ("root, too: two roots; " if old.is_root else f'a {old.type} of "{old.provider}"; ')
            + "nothing is changed"
        )
    if not old.is_root:
        raise StateError(f'node "{old.name}" is not the root')
    if note is None:
        if old.closed:
            raise StateError(
                f'the queue of root "{old.name}" is closed, and no takeover of Vedur has done '
                "that: nothing is changed; finish what has closed it, or open it again (update "
                "pgq.queue set queue_disable_insert = false, queue_external_ticker = false)"
            )
        return TakeoverProgress.OPEN
    if note.to != new.name:
        raise StateError(
            f'a takeover of "{old.name}" by "{note.to}" was begun: run takeover {old.name} '
            f"--node={note.to} again to finish it, or with --abort to undo it"
        )
    return TakeoverProgress.TICKED if note.tick is not None else TakeoverProgress.CLOSED


def find_reign(member: Member, epoch: str) -> Reign | None:
    """Return the reign of an epoch as a member knows it. The name of its root tells nothing: a
    failover to the same node has another epoch, and begins at another tick."""
    return next((reign for reign in member.reigns if reign.epoch == epoch), None)


@dataclass(frozen=True)
class Rival:
    """A node that was made root beside or after another one; `told_by` knows of it."""

    root: str
    told_by: str
    reign: Reign | None


def _follows(old: Member, member: Member) -> Reign | None:
    """Return the reign that followed the last one of a root, as a member knows it."""
    mine = last_reign(old.reigns)
    return next_reign(member.reigns, mine.epoch) if mine is not None else None


def ended_by(root: Member, other: Member) -> Reign | None:
    """Return the reign that has ended the one of a root, as another member knows it: the takeover
    that has closed the root, or the one that followed its last reign."""
    note = read_note(root)
    taken = find_reign(other, note.epoch) if note is not None else None
    return taken or _follows(root, other)


def find_ended(members: Members, root: str) -> Reign | None:
    """Return the reign that has ended the one of a root, as far as members that answer tell."""
    others = [m for m in members.values() if m.answers and m.name != root]
    return next((by for m in others if (by := ended_by(members[root], m)) is not None), None)


def explain_unturned(root: Member, by: Reign) -> str:
    """Say that a root which was replaced is not a branch yet, and what makes it one."""
    note = read_note(root)
    if note is not None and note.epoch == by.epoch:
        return (
            f'the takeover of "{root.name}" by "{note.to}" is not finished: run takeover '
            f"{root.name} --node={note.to} first"
        )
    return (
        f'"{root.name}" was replaced by "{by.root}" at tick {by.first_tick}: run "resurrect" with '
        f'the ini of "{root.name}" first'
    )


def require_turned(members: Members, old: str) -> None:
    """Raise where root `old` has taken over from another one, and that was not finished."""
    for member in members.values():
        if not member.answers or not member.is_root or member.name == old:
            continue
        by, note = ended_by(member, members[old]), read_note(member)
        if by is not None and note is not None and note.epoch == by.epoch:
            raise StateError(f"{explain_unturned(member, by)}; nothing is changed")


def find_rival(members: Members, old: str) -> Rival | None:
    """Find who was made root in place of `old`, as far as members that answer tell; first one that
    is root now. A root that `old` itself has replaced, or one before it, is none."""
    others = [m for m in members.values() if m.answers and m.name != old]
    for member in others:
        if member.is_root and ended_by(member, members[old]) is None:
            reign = _follows(members[old], member) or last_reign(member.reigns)
            return Rival(member.name, member.name, reign)
    for member in others:
        follows, last = _follows(members[old], member), last_reign(member.reigns)
        if follows is not None and last is not None:
            return Rival(last.root, member.name, follows)
    return None


def find_heirs(members: Members, old: str) -> list[Member]:
    """Return the members that have followed whoever was made root after `old`."""
    others = [m for m in members.values() if m.answers and m.name != old]
    return [m for m in others if _follows(members[old], m) is not None]


def replaced(old: str, rival: Rival, note: Note | None = None) -> str:
    """Say that a root must stay closed, and what is to be done instead."""
    reign = rival.reign
    if (
        note is not None
        and reign is not None
        and reign.epoch == note.epoch
        and rival.root == note.to  # else the one that was to take over was lost, or moved on
    ):
        return (
            f'"{rival.root}" is the root already: nothing is changed; run the same takeover again '
            "without --abort to finish it"
        )
    told = f' (as "{rival.told_by}" says)' if rival.told_by != rival.root else ""
    tick = f" at tick {reign.first_tick}" if reign is not None else ""
    return (
        f'"{rival.root}" was made root in place of "{old}"{tick}{told}: nothing is changed; run '
        f'"resurrect" with the ini of "{old}", which keeps what only that node has'
    )


@dataclass(frozen=True)
class PlannedStep:
    """One line of a plan; `done` by an earlier run, or because there is nothing to do."""

    text: str
    done: bool = False


def plan_live(
    members: Members, old: str, new: str, *, everybody: bool
) -> tuple[TakeoverProgress, list[str], list[PlannedStep]]:
    """Plan to replace a root that answers: how far it is, whom to move first, and the steps."""
    root, branch = require_member(members, old), require_member(members, new)
    progress = judge_progress(root, branch)
    others = movable(members, old, new) if everybody and progress is TakeoverProgress.OPEN else []
    closed, ticked = progress >= TakeoverProgress.CLOSED, progress >= TakeoverProgress.TICKED
    promoted, done = progress >= TakeoverProgress.PROMOTED, progress >= TakeoverProgress.DONE
    steps = [PlannedStep("check both nodes, tables, sequences, lag", closed)]
    steps += [PlannedStep(f'let "{name}" read from "{new}"') for name in others]
    steps += [
        PlannedStep(f'let "{new}" catch up with "{old}"', closed),
        PlannedStep(f'close the queue of "{old}" for writers', closed),
        PlannedStep("wait for transactions that began before", ticked),
        PlannedStep(f'write the last tick of "{old}"', ticked),
        PlannedStep(f'wait until "{new}" has applied it', promoted),
        PlannedStep(
            f'make "{new}" the root, with a new epoch, and let "{old}" read from it', promoted
        ),
        PlannedStep(f'make "{old}" a branch of "{new}"', done),
    ]
    return progress, others, steps


def movable(members: Members, old: str, new: str) -> list[str]:
    """Return the other nodes that read from a node, of which all must answer."""
    names = [name for name in children_of(members, old) if name != new]
    for name in names:
        if name not in members:
            raise StateError(
                f'node "{name}" reads from "{old}", and this node has not read of it yet: nothing '
                "is changed; run the command again in a moment"
            )
        require_member(members, name)
    return names


def require_no_moves(members: Members, names: Collection[str]) -> None:
    """Raise where a change of a provider was begun and not finished."""
    for name in names:
        if MOVE_CONSUMER in members[name].attrs:
            raise StateError(f"{interrupted(members[name])}; nothing is changed")


@dataclass(frozen=True)
class Failover:
    """What is to be done without the old root.

    source   the branch with the newest tick, from which the new root catches up; None if that is
             the new root itself
    tick     its newest tick, where the new reign begins
    orphans  nodes that read from a dead one and can go on at the new root
    ahead    nodes that cannot go on at the new root by themselves: they have what no branch of the
             newest reign has, or were root and are no branch yet
    teller   the branch that knows the newest reign
    graves   of those of `ahead` that have a queue, the tick from which on they would have to read
    """

    old: str
    new: str
    source: str | None
    tick: int
    orphans: tuple[str, ...]
    ahead: tuple[str, ...]
    teller: str | None = None
    graves: tuple[tuple[str, int], ...] = ()


def require_no_root(members: Members, new: str, gone: Collection[str] = ()) -> None:
    """Raise where a node beside `new` is root. One that is closed, and whose reign others know to
    be over, is none any more: it was not turned, or has come back."""
    for member in members.values():
        if not member.answers or not member.is_root or member.name in (new, *gone):
            continue
        by, note = find_ended(members, member.name), read_note(member)
        if by is None and note is not None and note.to in gone:
            raise StateError(
                f'"{member.name}" is root, closed for a takeover by "{note.to}", and nobody knows '
                f"that this one has opened: nothing is changed; run takeover {member.name} --abort "
                f"--dead={note.to}, which opens it again"
            )
        if by is None:
            raise StateError(f'"{member.name}" is root: nothing is changed')
        if not member.closed:
            raise StateError(
                f'"{member.name}" was replaced by "{by.root}" at tick {by.first_tick}, and takes '
                "writes: nothing is changed; let its worker run, which closes it, then run the "
                "same command again"
            )


def _serial(member: Member) -> int:
    last = last_reign(member.reigns)
    return last.serial if last is not None else 0


def _find_stale(branches: Sequence[Member], teller: Member) -> dict[str, Reign]:
    """Return the branches that missed a reign which another branch has followed, and went on behind
    the tick at which it began; with that reign."""
    stale: dict[str, Reign] = {}
    for member in branches:
        match = match_reigns(member.reigns, teller.reigns, member.tick or 0)
        follows = _follows(member, teller)
        if member.epochs and not member.reigns:  # the set had none when it was away
            follows = min(teller.reigns, key=lambda r: r.serial, default=None)
        if follows is not None and (member.tick or 0) > follows.first_tick:
            stale[member.name] = follows
        elif match is Match.FORKED:
            raise StateError(
                f'"{member.name}" and "{teller.name}" follow different roots: nothing is changed; '
                "choose one of them, and name the other one with --dead"
            )
    return stale


def plan_failover(members: Members, old: str, new: str, dead: Collection[str]) -> Failover:
    """Plan to replace a root that is gone; raises where it cannot be.

    The newest reign comes first, the newest tick after it: a branch that was away when a root was
    replaced may have more ticks than those who have followed the next one, and none of theirs.
    """
    gone = {old, *dead}
    branch = require_member(members, new)
    if not branch.is_branch:
        raise StateError(f'node "{new}" is a {branch.type}: only a branch can become root')
    others = [m for m in members.values() if m.name not in gone]
    require_no_root(members, new, gone)
    silent = [m.name for m in others if not m.answers and not m.dead]
    if silent:
        raise StateError(
            f"nodes do not answer: {', '.join(sorted(silent))}: nothing is changed; one of them "
            "may have more events than the others: start them, or name them with --dead"
        )
    alive = [m for m in others if m.answers]
    branches = [m for m in alive if m.is_branch and m.last_tick is not None]
    teller = max(branches, key=lambda m: (_serial(m), m.last_tick or 0, m.name == new))
    stale = _find_stale(branches, teller)
    fit = [m for m in branches if m.name not in stale]
    best = max(fit, key=lambda m: (m.last_tick or 0, m.name == new))
    if new in stale:
        raise StateError(
            f'"{new}" has applied tick {branch.tick}, and "{stale[new].root}" took over at tick '
            f'{stale[new].first_tick} (as "{teller.name}" says), which "{new}" has not followed: '
            f'nothing is changed; let "{best.name}" take over (--node={best.name}), then run '
            f'"resurrect" with the ini of "{new}"'
        )
    tick = best.last_tick or 0
    roots = {m.name: by for m in alive if m.is_root and (by := find_ended(members, m.name))}
    beyond = [
        m.name
        for m in alive
        if m.type == "leaf"
        and ((m.tick or 0) > tick
             or match_reigns(m.reigns, teller.reigns, m.tick or 0) is not Match.SAME)
    ]  # fmt: skip
    ahead = [*beyond, *stale, *roots]
    orphans = [
        m.name
        for m in alive
        if m.name != new and m.name not in ahead and m.provider in {*gone, *_dead_names(members)}
    ]
    source = None if best.name == new or (branch.last_tick or 0) >= tick else best.name
    kept = [(name, by.first_tick) for name, by in sorted({**stale, **roots}.items())]
    return Failover(
        *(old, new, source, tick, tuple(sorted(orphans)), tuple(sorted(ahead))),
        *(teller.name, tuple(kept)),
    )


def _dead_names(members: Members) -> set[str]:
    return {m.name for m in members.values() if m.dead}


def is_beyond(reigns: Reigns, theirs: Reigns, position: int) -> bool:
    """Tell whether a node that stands at a tick has applied what the root with these reigns never
    had. Where the set had no epochs before the last reign, its first tick alone tells: whoever has
    gone behind it with that root has been told of the reign."""
    last = last_reign(reigns)
    if match_reigns(theirs, reigns, position) is not Match.SAME:
        return True
    told = last is None or any(r.epoch == last.epoch for r in theirs)
    return not told and last is not None and position > last.first_tick


def plan_rest(
    members: Members, old: str, new: str, dead: Collection[str], beyond: Collection[str]
) -> Failover:
    """Plan what an earlier run has left after the promotion; nodes of `beyond` have applied more
    than the new root."""
    gone = {*dead, *_dead_names(members)}
    others = [m for m in members.values() if m.answers and m.name != new]
    lost = [m.name for m in others if m.provider in gone]
    # one that was pointed here and has no place: it is ahead, until rejoin gives it one
    known = members[new].subscribers
    ahead = [m.name for m in others
             if m.type == "leaf" and m.provider == new and m.name not in known]  # fmt: skip
    ahead += [name for name in lost if name in beyond]
    ahead += [m.name for m in others if m.is_root]
    orphans = [name for name in lost if name not in beyond]
    tick = members[new].last_tick or 0
    return Failover(old, new, None, tick, tuple(sorted(orphans)), tuple(sorted(ahead)))


def graves(reigns: Reigns, members: Members, old: str, new: str) -> dict[str, int]:
    """Return the roots that were lost before `old` and have not come back, each with the tick from
    which on it would have to read."""
    roots = {reign.epoch: reign.root for reign in reigns}
    found: dict[str, int] = {}
    for reign in sorted(reigns, key=lambda r: r.serial):
        name = roots.get(reign.previous or "")
        member = members.get(name or "")
        if reign.kind != ReignKind.FAILOVER or name is None or name in (old, new):
            continue
        if member is not None and member.dead:
            found[name] = reign.first_tick
    return found


def failover_steps(plan: Failover) -> list[PlannedStep]:
    """List the steps of a failover."""
    steps = [PlannedStep(f'tag "{plan.old}" as dead on every node that answers')]
    if plan.source is not None:
        steps.append(
            PlannedStep(f'let "{plan.new}" catch up from "{plan.source}" to tick {plan.tick}')
        )
    steps.append(
        PlannedStep(f'make "{plan.new}" the root behind tick {plan.tick}, with a new epoch')
    )
    steps += [PlannedStep(f'let "{name}" read from "{plan.new}"') for name in plan.orphans]
    kept = dict(plan.graves)
    steps += [
        PlannedStep(
            f'keep what "{name}" needs from tick {kept[name]} on: run resurrect there'
            if name in kept
            else f'point "{name}" to "{plan.new}": it has applied more, run rejoin there'
        )
        for name in plan.ahead
    ]
    return steps


def plan_branch(
    members: Members, old: str, new: str, *, everybody: bool
) -> tuple[str, list[tuple[str, str]]]:
    """Plan to let a node take the place of a branch: the provider above it, and who moves where."""
    member = members[old]
    above = member.provider if member.answers else None
    if above is None:
        parents = [n for n in parents_of(members, old) if n != new]
        if len(parents) != 1:
            raise StateError(
                f'node "{old}" does not answer; nodes that keep a subscription for it: '
                f"{', '.join(parents) or 'none'}: nothing is changed; use change-provider"
            )
        above = parents[0]
    if above == new:
        raise StateError(f'node "{old}" reads from "{new}": there is nothing to take over')
    branch = require_member(members, new)
    if not branch.is_branch:
        raise StateError(f'node "{new}" is a {branch.type}: nodes can only read from a branch')
    if old in path_up(members, above):
        raise StateError(f'node "{above}" is below "{old}": nothing is changed')
    moves = [(new, above)] if branch.provider != above else []
    if member.answers and member.provider != new:
        moves.append((old, new))
    if everybody:
        moves += [(name, new) for name in movable(members, old, new)]
    return above, moves


def numbered(steps: Sequence[PlannedStep]) -> list[str]:
    """Number the lines of a plan."""
    return [
        f"{at}. {step.text}{' (done)' if step.done else ''}" for at, step in enumerate(steps, 1)
    ]
