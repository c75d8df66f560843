"""Where the nodes of a set disagree about its tree. Pure.

Every node says from whom it reads, and a provider says for whom it keeps a subscription. That is
stored in two databases, so a crash, a restore from a backup or a change by hand can set them apart.
A branch may name nodes whose watermarks it waits for (`sync_watermark`), and these may be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vedur.node.info import synced_nodes


class Claims(Protocol):
    """What a node says; `subscribers` is None where that is not known."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def provider(self) -> str | None: ...
    @property
    def subscribers(self) -> tuple[str, ...] | None: ...
    @property
    def attrs(self) -> Mapping[str, str]: ...
    @property
    def failure(self) -> str | None: ...


@dataclass(frozen=True)
class Disagreement:
    """One line about a node: what does not fit, how bad that is (fail or warn), what to do."""

    node: str
    what: str
    severity: str
    action: str


def find_disagreements(nodes: Sequence[Claims]) -> list[Disagreement]:
    """Return everything in which the nodes that answered do not fit together."""
    known = {node.name: node for node in nodes}
    parents = {node.name: node.provider for node in nodes}
    found = list(_roots(nodes))
    for node in nodes:
        if node.failure is None:
            found += _above(node, known, parents)
            found += _below(node, known)
            found += _synced(node, known)
    return found


def in_ring(name: str, parents: Mapping[str, str | None]) -> bool:
    """Tell whether a node reads from itself, directly or over others."""
    at, seen = parents.get(name), {name}
    while at is not None and at not in seen:
        seen.add(at)
        at = parents.get(at)
    return at == name


def _roots(nodes: Sequence[Claims]) -> Iterator[Disagreement]:
    roots = [node.name for node in nodes if node.type == "root" and node.failure is None]
    if len(roots) > 1:
        for name in roots:
            yield Disagreement(
                name,
                f"there are several roots: {', '.join(roots)}",
                "fail",
                "let applications write to one of them only, and find out which one the nodes "
                "read from before anything else is changed",
            )


def _above(
    node: Claims, known: Mapping[str, Claims], parents: Mapping[str, str | None]
) -> Iterator[Disagreement]:
    name = node.provider
    if name is None or node.type == "root":
        return
    if in_ring(node.name, parents):
        path = [node.name]
        while (above := parents.get(path[-1])) is not None and above != node.name:
            path.append(above)
        yield Disagreement(
            node.name,
            f"it reads from itself: {' reads from '.join([*path, node.name])}",
            "fail",
            "change-provider of one of them to the root",
        )
        return
    provider = known.get(name)
    if provider is None:
        yield Disagreement(
            node.name,
            f'it reads from "{name}", which is no member as seen from here',
            "warn",
            "see members on both nodes: the root tells new members through the queue",
        )
    elif provider.failure is None and provider.type == "leaf":
        yield Disagreement(
            node.name,
            f'it reads from "{name}", which is a leaf and has no queue',
            "fail",
            "change-provider to the root or a branch",
        )
    elif provider.subscribers is not None and node.name not in provider.subscribers:
        yield Disagreement(
            node.name,
            f'it reads from "{name}", which keeps no subscription for it',
            "fail",
            '"vedur INI rejoin" on this node registers it and says what else is needed',
        )


def _below(node: Claims, known: Mapping[str, Claims]) -> Iterator[Disagreement]:
    for name in node.subscribers or ():
        # a reader that is not known here is new: the root tells of it through the queue
        reader = known.get(name)
        if reader is None or reader.failure is not None or reader.provider == node.name:
            continue
        if reader.type == "root":
            where = "is the root"
            action = f"takeover {_child_of(name, node, known)} --node={name} --no-compare"
        else:
            where = f'reads from "{reader.provider}"'
            action = f"change-provider --node={name} --provider={reader.provider}"
        yield Disagreement(
            node.name,
            f'it keeps a subscription for "{name}", which {where}: rotation waits for it',
            "warn",
            f'"vedur INI {action}" ends it',
        )


def _synced(node: Claims, known: Mapping[str, Claims]) -> Iterator[Disagreement]:
    gone = [name for name in synced_nodes(node.attrs) if name not in known]
    if gone:
        yield Disagreement(
            node.name,
            f"its sync_watermark names {', '.join(gone)}, not in the set: passed over",
            "warn",
            "pgq_node.set_node_attrs on this node takes the name out, unless such a node is yet to "
            "be created",
        )


def _child_of(root: str, node: Claims, known: Mapping[str, Claims]) -> str:
    """Return a node that reads from the root, the one at hand if it does: a takeover of it is done
    already, and the command only ends what is left."""
    children = [n for n in known.values() if n.failure is None and n.provider == root]
    return node.name if node in children or not children else children[0].name
