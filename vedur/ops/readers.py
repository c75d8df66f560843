"""Consumers beside the workers of nodes whose positions go when a node is dropped.

A plain consumer of PgQ keeps its position in the queue that it reads. A cascaded one keeps it on a
node (`pgq_node.local_state`) and reads from that or another node. Neither is a member of the set:
nobody but its program knows whether it is still wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from vedur.errors import DatabaseError, StateError
from vedur.log import mask
from vedur.names import quote_literal
from vedur.node.info import ConsumerInfo, get_consumer_info
from vedur.node.plan import parents_of
from vedur.node.position import unregister_consumer
from vedur.ops.members import SetView
from vedur.sql import query

log = logging.getLogger(__name__)

#: How many of them a message names.
_NAMED = 3


@dataclass(frozen=True)
class OtherConsumer:
    """A consumer that is no node's worker: `host` keeps its position, empty for a plain one; it
    reads from `provider` and stands at `tick`."""

    consumer: str
    tick: int | None
    provider: str
    host: str = ""


def read_readers(view: SetView, queue: str, name: str) -> list[OtherConsumer]:
    """Read which consumers have their position on a node, or read from it, as far as nodes that
    answer tell. First copies, watermarks and gravestones are none."""
    found: list[OtherConsumer] = []
    elsewhere: dict[str, int] = {}
    for host, db in view.databases.items():
        if not view.members[host].answers:
            continue  # it is another node's database
        for info in get_consumer_info(db, queue):
            consumer, tick = info.consumer_name, info.last_tick_id
            if _is_own(view, host, info):
                continue
            if name in (host, info.provider_node):
                found.append(OtherConsumer(consumer, tick, info.provider_node, host))
            if info.provider_node != name:
                elsewhere[consumer] = max(tick, elsewhere.get(consumer, 0))
    target = view.databases.get(name)
    if target is None:
        return found
    known = {m.worker for m in view.members.values() if m.answers}
    known |= {reader.consumer for reader in found if reader.provider == name}
    plain = [
        OtherConsumer(row.consumer, row.tick, name)
        for row in target.query(query("node", "plain_consumers"), [queue])
        # what one has left here that has moved on is no position of its own
        if row.consumer not in known and (row.tick or 0) > elsewhere.get(row.consumer, -1)
    ]
    return [*plain, *found]


def _is_own(view: SetView, host: str, info: ConsumerInfo) -> bool:
    """Is it the node's worker, or a first copy? Pure."""
    return info.consumer_name == view.members[host].worker or ".copy." in info.consumer_name


def require_no_readers(
    view: SetView, queue: str, name: str, readers: Sequence[OtherConsumer], *, reparent: bool
) -> None:
    """Raise where consumers would lose their positions with a node; with `reparent` those that can
    be moved are none of them."""
    lost = [r for r in readers if not (reparent and r.host not in ("", name))]
    if not lost:
        return
    lines = [_explain(view, queue, name, reader) for reader in lost[:_NAMED]]
    more = f" (and {len(lost) - _NAMED} more)" if len(lost) > _NAMED else ""
    raise StateError(
        f'with node "{name}" positions of consumers would be lost: {"; ".join(lines)}{more}; the '
        "node is not dropped; --forget-consumers gives these positions up"
    )


def _explain(view: SetView, queue: str, name: str, reader: OtherConsumer) -> str:
    """Say what a consumer has to do with a node, and what leads it away. Pure."""
    consumer = reader.consumer
    args = f"{quote_literal(queue)}, {quote_literal(consumer)}"
    if not reader.host:
        return (
            f'"{consumer}" reads its queue, after tick {reader.tick}: stop it, run "select '
            f'pgq.register_consumer_at({args}, {reader.tick})" on the node where it is to go on, '
            f'and "select pgq.unregister_consumer({args})" on "{name}"'
        )
    if reader.host == name:
        return (
            f'"{consumer}" reads from "{reader.provider}" and keeps its position, tick '
            f'{reader.tick}, on "{name}": if it is not wanted any more, run "select '
            f'pgq_node.unregister_consumer({args})" on "{name}" and "select '
            f'pgq.unregister_consumer({args})" on "{reader.provider}"'
        )
    above = _above(view, name) or "NODE"
    return (
        f'"{consumer}" of node "{reader.host}" reads from it, after tick {reader.tick}: run '
        f"change-provider --node={reader.host} --consumer={consumer} --provider={above}, or use "
        "--reparent"
    )


def _above(view: SetView, name: str) -> str | None:
    member = view.members[name]
    parents = parents_of(view.members, name)
    return member.provider if member.answers else next(iter(parents), None)


def forget_readers(view: SetView, queue: str, name: str, readers: Sequence[OtherConsumer]) -> None:
    """Give the positions of consumers up that go with a node: other nodes forget them, and keep no
    events for them."""
    for reader in readers:
        log.warning(
            "Consumer '%s' loses its position, tick %s, with node '%s'",
            *(reader.consumer, reader.tick, name),
        )
        if not reader.host:
            continue  # it goes with the queue
        try:
            if reader.host != name:
                host = view.databases[reader.host]
                prefix = view.prefix(reader.host)
                unregister_consumer(host, queue, reader.consumer, node=prefix)
            elif reader.provider != name:
                provider = view.databases[reader.provider]
                provider.value(query("node", "unregister_consumer"), [queue, reader.consumer])
        except (DatabaseError, StateError) as error:
            log.warning(
                "Consumer '%s' is still known to '%s' (%s)",
                reader.consumer,
                reader.host if reader.host != name else reader.provider,
                mask(error.message),
            )
