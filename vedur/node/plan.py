"""Plans for the tree of nodes: who may read from whom, and what a move still has to do. Pure.

A plan is worked out from what every node says of itself (`Member`), before anything is changed, and
it is worked out again when the command is run again: steps that are done are seen on the nodes and
left out. So a command that was killed between two steps is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vedur.errors import StateError
from vedur.node.epoch import Reign
from vedur.node.info import NodeType

#: Attributes of a node while its consumer is being moved: which, where to, and whether the move
#: itself has paused it. `status` shows them, and they tell the next run what was begun.
MOVE_CONSUMER, MOVE_PROVIDER, MOVE_RESUME = "move_consumer", "move_provider", "move_resume"


#: Attributes of a root from the moment in which a takeover closes it: by whom, under which epoch,
#: the transaction that closed it, when that was, and its last tick once that is written.
TAKEOVER_TO, TAKEOVER_EPOCH = "takeover_to", "takeover_epoch"
TAKEOVER_TXID, TAKEOVER_TIME, TAKEOVER_TICK = "takeover_txid", "takeover_time", "takeover_tick"


@dataclass(frozen=True)
class Member:
    """A node as it describes itself; with `failure` it does not answer, and only that is known."""

    name: str
    type: str = ""
    provider: str | None = None
    worker: str = ""
    tick: int | None = None
    first_tick: int | None = None  # of its own queue
    last_tick: int | None = None
    paused: bool = False
    subscribers: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()  # tables of it that are being copied
    ahead: tuple[str, ...] = ()  # in sync, with the snapshot of a copy: in numbers of the provider
    attrs: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False  # its queue takes no events of writers
    reigns: tuple[Reign, ...] = ()  # that it knows of
    epochs: bool = False  # its database keeps reigns: one that it does not know it has not followed
    parts: tuple[str, ...] = ()  # queues that are merged into the node
    dead: bool = False  # tagged, or named by --dead
    failure: str = ""
    says: str = ""  # the name that the database at its location gives itself

    @property
    def answers(self) -> bool:
        """Whether anything is known of it."""
        return not self.failure

    @property
    def is_root(self) -> bool:
        """Whether it has no provider but itself."""
        return self.type == "root"

    @property
    def is_branch(self) -> bool:
        """Whether it passes on the events and ticks of its provider."""
        return self.type == "branch"

    @property
    def has_queue(self) -> bool:
        """Whether other nodes can read from it; one that does not answer may have a queue."""
        return not self.type or NodeType(self.type).has_queue


Members = Mapping[str, Member]


def require_member(members: Members, name: str) -> Member:
    """Return a member that answers; raises for one that is unknown or does not."""
    member = members.get(name)
    if member is None:
        raise StateError(f"Unknown node: {name}")
    if not member.answers:
        raise StateError(f'node "{name}" does not answer ({member.failure}): nothing is changed')
    return member


def path_up(members: Members, start: str) -> list[str]:
    """Return the nodes from `start` up, as each names its provider, as far as that is known.

    A node that does not answer has the provider that keeps a subscription for it. Raises where the
    nodes form a cycle, and where a node in the middle cannot be placed: only the root is allowed to
    be silent with nobody above it.
    """
    path: list[str] = []
    name: str | None = start
    while name is not None:
        if name in path:
            ring = " reads from ".join([*path[path.index(name) :], name])
            raise StateError(f"the nodes form a cycle: {ring}")
        path.append(name)
        member = members.get(name) or Member(name, failure="it is not known here")
        if member.is_root:
            return path
        name = member.provider if member.answers else _subscribed_at(members, member)
    return path


def _subscribed_at(members: Members, silent: Member) -> str | None:
    """Return the provider of a node that does not answer; None if it must be the root."""
    parents = parents_of(members, silent.name)
    if parents:
        return parents[0]
    if any(m.answers and m.is_root for m in members.values()):
        raise StateError(
            f'node "{silent.name}" does not answer ({silent.failure}), and no other node says whom '
            "it reads from: nothing is changed"
        )
    return None


def children_of(members: Members, name: str) -> list[str]:
    """Return the nodes that read from a node: those that say so, and those that it says it has.

    A node that answers and reads from another one is not a child, whatever is left of it here.
    """
    known = members.get(name)
    told = set(known.subscribers if known else ())
    found = {
        m.name for m in members.values() if m.answers and m.provider == name and m.name != name
    }
    silent = {n for n in told if n not in members or not members[n].answers}
    return sorted(found | silent)


def parents_of(members: Members, name: str) -> list[str]:
    """Return the nodes that keep a subscription for a node, whether or not it reads from them."""
    return sorted(m.name for m in members.values() if m.answers and name in m.subscribers)


@dataclass(frozen=True)
class Move:
    """What is left to do to let a consumer of a node read from another provider.

    switch   the node itself is yet to be told
    tick     the position that the new provider must have
    resume   the consumer was paused by an earlier run of the same move
    old      nodes that still keep a subscription for it
    anew     first copies begin anew: the provider that they have read from does not answer
    """

    node: str
    consumer: str
    provider: str
    switch: bool
    tick: int
    resume: bool
    old: tuple[str, ...] = ()
    anew: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.switch or self.resume or self.old)


def plan_move(members: Members, node: str, provider: str) -> Move:
    """Plan to let the worker of a node read from another node; raises where that cannot be."""
    mine = require_member(members, node)
    if mine.is_root:
        raise StateError(f'node "{node}" is the root: it has no provider to change')
    if provider == node:
        raise StateError("cannot subscribe to itself")
    _require_provider(members, node, provider)
    before = members.get(mine.provider or "")
    anew = mine.provider != provider and (before is None or not before.answers)
    if mine.provider != provider and not anew:
        require_no_copies(node, mine.copies)
    old = [n for n in parents_of(members, node) if n != provider]
    begun = members.get(mine.attrs.get(MOVE_PROVIDER, ""))
    if begun is not None and not begun.answers and begun.name != provider:
        old.append(begun.name)  # a move there was interrupted: it may keep a subscription
    move = _plan(mine, mine.worker, mine.provider, mine.tick, provider, tuple(old))
    return replace(move, anew=anew)


def require_no_copies(node: str, copies: Sequence[str]) -> None:
    """Raise while tables of a node are being copied."""
    if copies:
        raise StateError(
            f'{len(copies)} table(s) of node "{node}" are being copied '
            f"({', '.join(copies[:5])}): nothing is changed; run wait-sync first"
        )


def explain_ahead(member: Member) -> str:
    """Say what keeps a node at its provider whose tables have the snapshots of their copies."""
    names = ", ".join(member.ahead[:5])
    return (
        f'{len(member.ahead)} table(s) of node "{member.name}" were copied just now ({names}), and '
        f'the snapshot of the copy, in numbers of node "{member.provider}", tells until the next '
        "tick which changes they have already"
    )


def plan_consumer_move(
    members: Members, node: str, consumer: str, reads_from: str, tick: int, provider: str
) -> Move:
    """Plan the same for a consumer beside the worker, which keeps its position on the node."""
    mine = require_member(members, node)
    if ".copy." in consumer:
        raise StateError(
            f'consumer "{consumer}" belongs to the first copy of a table, which ends by itself: '
            "run wait-sync"
        )
    _require_provider(members, node, provider, itself=True)
    begun = mine.attrs.get(MOVE_PROVIDER) if mine.attrs.get(MOVE_CONSUMER) == consumer else None
    old = [n for n in dict.fromkeys((reads_from, begun)) if n and n != provider]
    return _plan(mine, consumer, reads_from, tick, provider, tuple(old))


def _require_provider(members: Members, node: str, provider: str, *, itself: bool = False) -> None:
    new = require_member(members, provider)
    if not new.has_queue:
        raise StateError(f'node "{provider}" is a leaf: it has no queue to read from')
    if itself or not children_of(members, node):
        return
    path = path_up(members, provider)
    if node in path:
        raise StateError(
            f'node "{provider}" is below "{node}" ({" reads from ".join(path)}): nothing is changed'
        )


def _plan(
    mine: Member,
    consumer: str,
    reads_from: str | None,
    tick: int | None,
    provider: str,
    old: tuple[str, ...],
) -> Move:
    if tick is None:
        raise StateError(f'node "{mine.name}" has no position')
    begun = mine.attrs.get(MOVE_CONSUMER)
    # one of the same consumer is led elsewhere: the node that it was to read from may be gone
    if begun is not None and begun != consumer:
        raise StateError(f"{interrupted(mine)}; nothing is changed")
    resume = mine.attrs.get(MOVE_RESUME) == "1"
    move = Move(mine.name, consumer, provider, reads_from != provider, tick, resume, old)
    if move.done and begun is None:
        raise StateError(f"node '{mine.name}' has already '{provider}' as provider")
    return move


def interrupted(mine: Member) -> str:
    """Say which move of a node was begun, and how it is finished, led elsewhere or given up."""
    consumer, provider = mine.attrs.get(MOVE_CONSUMER), mine.attrs.get(MOVE_PROVIDER)
    command = f"change-provider --node={mine.name} --consumer={consumer}"
    return (
        f'a move of "{consumer}" to "{provider}" on node "{mine.name}" was interrupted: run '
        f"{command} --provider={provider} again to finish it, or with another --provider; "
        f"resume --node={mine.name} --consumer={consumer} gives it up"
    )


def tick_is_missing(new: Member, tick: int) -> str:
    """Return why a provider cannot serve a position, empty if it can be expected to have it.

    A provider that is behind will have the tick, as every tick is passed on.
    """
    if new.first_tick is None or new.last_tick is None:
        return f'node "{new.name}" has no ticks: nothing is changed'
    if tick < new.first_tick:
        return (
            f'node "{new.name}" does not have tick {tick}, which the node has applied (it has '
            f"ticks {new.first_tick} to {new.last_tick}): nothing is changed; choose another node"
        )
    return ""


def find_above(members: Members, node: str) -> str:
    """Return the provider of a node: where it does not answer, the one that keeps a subscription
    for it. Raises for the root, and where nobody knows."""
    member = members.get(node)
    if member is None:
        raise StateError(f"Unknown node: {node}")
    if member.is_root:
        raise StateError(f'node "{node}" is the root: nobody is above it; takeover replaces it')
    if member.answers and member.provider is not None:
        return member.provider
    parents = parents_of(members, node)
    if len(parents) != 1:
        found = ", ".join(parents) or "none"
        raise StateError(
            f'node "{node}" does not answer; nodes that keep a subscription for it: {found}; run '
            f"change-provider for each of its children: {', '.join(children_of(members, node))}"
        )
    return parents[0]


def plan_reparent(members: Members, node: str) -> tuple[str, list[Move]]:
    """Plan to let every child of a node read from its provider; returns that provider, and
    moves."""
    above = find_above(members, node)
    member, children = members[node], children_of(members, node)
    # a run that was killed may have switched a child and neither resumed nor unsubscribed it
    begun = [
        m.name
        for m in members.values()
        if m.answers
        and m.name not in (node, above)
        and m.provider == above
        and (m.name in member.subscribers or m.attrs.get(MOVE_PROVIDER) == above)
    ]
    return above, [plan_move(members, child, above) for child in sorted({*children, *begun})]


def require_droppable(members: Members, node: str) -> None:
    """Raise while other nodes read from a node, or may do so."""
    children = children_of(members, node)
    if children:
        raise StateError(
            f"node still has subscribers: {', '.join(children)}: "
            "change their provider or drop them first, or use --reparent"
        )
    member = members.get(node)
    silent = [] if member is None or member.answers else _unplaced(members, node)
    if silent:
        names = ", ".join(silent)
        raise StateError(
            f'node "{node}" does not answer, and nor do {names}, of which no other node says whom '
            f'they read from: it may be "{node}", and what they have yet to read would be '
            "forgotten; nothing is changed: run it again when they answer; those that are gone for "
            "good are left out after tag-dead"
        )


def _unplaced(members: Members, node: str) -> list[str]:
    """Return the other nodes that do not answer, nor are tagged as dead, and have no place that an
    answering node knows. Where no root answers, one of them is the root, unless `node` is it."""
    found = sorted(
        m.name
        for m in members.values()
        if m.name != node and not m.answers and not m.dead and not parents_of(members, m.name)
    )
    has_root = any(m.answers and m.is_root for m in members.values())
    if not has_root and parents_of(members, node) and len(found) == 1:
        return []
    return found


def plan_rename(members: Members, old: str, new: str) -> list[str]:
    """Return the nodes that take part in a rename, in the order in which they forget the old name.

    The root is the last one: it tells the others through the queue, and a provider that is told so
    before its own list is changed would end the subscription of the node. While a rename is under
    way both names lead to one database.
    """
    if old == new:
        raise StateError("the new name is the old one")
    if not new or "," in new:
        raise StateError(f'"{new}" cannot be a name: lists of nodes are separated by commas')
    if old not in members:
        raise StateError(f"Unknown node: {old}")
    here, there = members[old], members.get(new)
    if there is not None and not (there.says == here.says and here.says in (old, new)):
        raise StateError(f'there is a node "{new}" already: nothing is changed')
    renamed = (old, new)
    silent = [m.name for m in members.values() if not m.answers and m.name not in renamed]
    if not here.says:
        silent.append(old)
    if silent:
        raise StateError(
            f"not every node answers ({', '.join(sorted(silent))}), and the rename would not "
            "reach it: nothing is changed; run it again when all nodes answer, or drop those that "
            "are gone"
        )
    others = [m for m in members.values() if m.name not in renamed]
    # one database answers to both names; it is asked once, by the name that it gives itself
    both = [members[here.says]]
    return [m.name for m in sorted([*others, *both], key=lambda m: (m.is_root, m.name))]
