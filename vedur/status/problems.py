"""What needs attention in a set, and what to do about it. Pure.

`ready` answers the question of a load balancer: may the local node be read from?
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vedur.node.epoch import is_other_epoch
from vedur.node.plan import MOVE_CONSUMER, MOVE_PROVIDER, TAKEOVER_TO
from vedur.node.position import is_lost
from vedur.status.detail import HeldBy, NodeDetail, QueueHealth
from vedur.status.overview import Overview
from vedur.status.snapshot import TAGGED

#: Seconds of lag that an operator should look at, unless told otherwise.
MAX_LAG = 60.0
#: A tick may be this much later than the idle period before the ticker counts as dead.
_TICKER_SLACK = 10.0
#: Seconds after which an open transaction is trouble for rotation.
_OPEN_TOO_LONG = 600.0
#: Rotation periods after which a queue that did not rotate is stuck.
_ROTATIONS_LATE = 3.0
#: Seconds without a sign of a consumer.
_UNSEEN = 3600.0
#: Seconds that a node's watermark may be older than its position: workers report every 5 minutes.
_HELD_BACK = 3600.0


class Severity(StrEnum):
    """How bad."""

    FAIL = "fail"
    WARN = "warn"


class Kind(StrEnum):
    """What it is about."""

    NODE = "node"
    WORKER = "worker"
    LAG = "lag"
    COPY = "copy"
    QUARANTINE = "quarantine"
    TICKER = "ticker"
    ROTATION = "rotation"
    TRANSACTION = "transaction"
    RIGHTS = "rights"
    TREE = "tree"
    DDL = "ddl"


@dataclass(frozen=True)
class Problem:
    """One line: where, what, and the next action."""

    severity: Severity
    kind: Kind
    node: str
    what: str
    action: str


def problems(overview: Overview, max_lag: float = MAX_LAG) -> list[Problem]:
    """List everything that needs attention, failures first."""
    gone = unreachable(overview)
    unsorted = [
        problem for node in overview.nodes for problem in node_problems(node, max_lag, gone)
    ]
    unsorted += _held_back(overview)
    return sorted(unsorted, key=lambda problem: problem.severity is not Severity.FAIL)


def unreachable(overview: Overview) -> set[str]:
    """Return the nodes that do not answer, or are tagged as dead."""
    return {node.name for node in overview.nodes if not node.reachable}


def ready(overview: Overview, max_lag: float = MAX_LAG) -> list[str]:
    """List the reasons why the local node should not be read from now; empty if it may be."""
    node = overview.local
    if not node.reachable:
        return [f'node "{node.name}": {node.status.failure}']
    reasons = [problem.what for problem in _worker(node)]
    if node.lag is None:
        reasons.append("the lag is not known: the root does not answer")
    elif node.lag > max_lag:
        reasons.append(f"{node.lag:.0f} s behind, more than {max_lag:.0f} s")
    if node.queue is not None:
        reasons += [problem.what for problem in _ticker(node.name, node.queue)]
    half = sum(table.local and not table.ready for table in node.tables)
    if half:
        reasons.append(f"{half} table(s) not in sync yet")
    return reasons


def node_problems(
    node: NodeDetail, max_lag: float = MAX_LAG, gone: Collection[str] = ()
) -> Iterator[Problem]:
    """List the problems of one node; `gone` are nodes that do not answer."""
    if not node.reachable:
        yield _unreachable(node)
        return
    yield from _tree(node)
    yield from _closed(node, gone)
    yield from _worker(node)
    if node.lag is not None and node.lag > max_lag:
        events = f", about {node.backlog} events" if node.backlog else ""
        yield Problem(
            Severity.WARN,
            Kind.LAG,
            node.name,
            f"{node.lag:.0f} s behind the root{events}",
            "check that the worker is running and read its log; a large batch can take minutes",
        )
    for copy in node.copies:
        if copy.error:
            yield Problem(
                Severity.FAIL,
                Kind.COPY,
                node.name,
                f"the first copy of {copy.table_name} is held up: {copy.error}",
                "fix the cause; the copy is tried again by itself and resumes where it was",
            )
    if node.status.resident_loss is not None:
        yield Problem(
            Severity.WARN,
            Kind.WORKER,
            node.name,
            "small batches take longer, as each is a Spark job of its own for now: "
            + node.status.resident_loss.reason,
            "nothing: the worker makes another resident task by itself; its log says more",
        )
    if node.quarantine:
        count = sum(item.events for item in node.quarantine)
        tables = _names([item.table_name or "no table" for item in node.quarantine])
        yield Problem(
            Severity.WARN,
            Kind.QUARANTINE,
            node.name,
            f"{count} event(s) of {tables} in quarantine",
            '"vedur INI quarantine list" shows them; fix the cause, then "quarantine replay"',
        )
    for item in node.status.table_problems:
        yield Problem(
            Severity(item.severity),
            Kind.DDL,
            node.name,
            f"{item.table_name}: {item.what}",
            item.action,
        )
    if node.queue is not None:
        yield from _ticker(node.name, node.queue)
        yield from _rotation(node.name, node.queue, node.held_by)
    for open_one in node.transactions:
        if open_one.seconds > _OPEN_TOO_LONG:
            yield Problem(
                Severity.WARN,
                Kind.TRANSACTION,
                node.name,
                f"a transaction is open for {open_one.seconds / 60:.0f} minutes: pid "
                f'{open_one.pid}, role "{open_one.role}", application "{open_one.application}"',
                "end it (pg_terminate_backend): it holds back rotation and vacuum",
            )
    for note in node.notes:
        yield Problem(
            Severity.WARN,
            Kind.RIGHTS,
            node.name,
            note,
            "see docs/reference/privileges.md for the rights",
        )


def _unreachable(node: NodeDetail) -> Problem:
    if node.status.failure == TAGGED:
        return Problem(
            Severity.WARN,
            Kind.NODE,
            node.name,
            TAGGED,
            f'"vedur INI drop-node {node.name}", when it will not come back',
        )
    return Problem(
        Severity.FAIL,
        Kind.NODE,
        node.name,
        f"no answer: {node.status.failure}",
        'see that the server runs and that its location ("vedur INI members") is right; '
        '"vedur INI change-location" tells the nodes where it has moved to',
    )


def _worker(node: NodeDetail) -> Iterator[Problem]:
    for error in node.replay_errors:
        place = f"event {error.ev_id}" if error.ev_id is not None else "an event"
        of = f" of {error.table_name}" if error.table_name else ""
        yield Problem(
            Severity.FAIL,
            Kind.WORKER,
            node.name,
            f"{place}{of} is refused: {error.message}",
            '"vedur INI errors" shows it; fix the target and the worker goes on by itself, '
            'or "skip" the event',
        )
    if not node.replay_errors:
        for stop in node.status.errors:
            yield Problem(
                Severity.FAIL,
                Kind.WORKER,
                node.name,
                f'worker "{stop.consumer}" cannot go on: {stop.error}',
                _way_out(stop.error),
            )
    if node.status.paused:
        yield Problem(
            Severity.WARN,
            Kind.WORKER,
            node.name,
            "the worker is paused",
            f'"vedur INI resume --node={node.name}"',
        )
    elif not node.status.uptodate:
        yield Problem(
            Severity.WARN,
            Kind.WORKER,
            node.name,
            "the worker has not seen the latest settings of its node",
            'start it ("vedur -d INI worker"), or see its log',
        )


def _way_out(error: str) -> str:
    """Name the command that mends what stops a worker."""
    if is_lost(error):
        return '"vedur INI rejoin" on this node says what it would do, "rejoin --apply" does it'
    if is_other_epoch(error) and "does not know it" in error:
        return "the error says it: the root was restored from a backup of before it was root"
    if is_other_epoch(error):
        return (
            "see docs/how-to/failover.md: change-provider to the new root for a node that is "
            "behind, rejoin for a leaf that is ahead, resurrect for a root that was deposed"
        )
    return "fix the cause; the worker retries by itself. Its log says more"


def _ticker(name: str, queue: QueueHealth) -> Iterator[Problem]:
    if queue.ticker_paused:
        yield Problem(
            Severity.WARN,
            Kind.TICKER,
            name,
            "the ticker of the queue is paused",
            "set ticker_paused to false",
        )
    elif queue.ticker_lag is None:
        yield Problem(
            Severity.FAIL,
            Kind.TICKER,
            name,
            "the queue has no tick",
            "start pgqd for this database",
        )
    elif not queue.external_ticker and queue.ticker_lag > queue.idle_period + _TICKER_SLACK:
        yield Problem(
            Severity.FAIL,
            Kind.TICKER,
            name,
            f"no tick for {queue.ticker_lag:.0f} s",
            "start pgqd for this database, or see its log",
        )


def _rotation(name: str, queue: QueueHealth, held_by: HeldBy | None) -> Iterator[Problem]:
    slow = [
        consumer
        for consumer in queue.consumers
        # names with a dot are watermarks, kept by the workers that are looked at anyway
        if not consumer.consumer_name.startswith(".") and (consumer.last_seen or 0.0) > _UNSEEN
    ]
    for consumer in slow:
        assert consumer.last_seen is not None
        yield Problem(
            Severity.WARN,
            Kind.ROTATION,
            name,
            f'consumer "{consumer.consumer_name}" was not seen for {consumer.last_seen / 3600:.0f} '
            f"h, {consumer.pending_events or 0} events wait for it",
            "start it, or unregister it: the queue keeps every event until then",
        )
    period = queue.rotation_period
    if period and queue.since_rotation > period * _ROTATIONS_LATE and not slow:
        yield Problem(
            Severity.WARN,
            Kind.ROTATION,
            name,
            f"the queue's tables were not rotated for {queue.since_rotation / 3600:.1f} h"
            + (f"; the oldest events are kept for {held_by.text}" if held_by else ""),
            "see that pgqd runs, and who reads slowly (consumers) or keeps a transaction open",
        )


def _tree(node: NodeDetail) -> Iterator[Problem]:
    """Name what nodes see differently, and a move that was not finished."""
    for found in node.status.disagreements:
        severity = Severity(found.severity)
        yield Problem(severity, Kind.TREE, node.name, found.what, found.action)
    provider, consumer = (node.status.attrs.get(key) for key in (MOVE_PROVIDER, MOVE_CONSUMER))
    if provider is not None:
        yield Problem(
            Severity.WARN,
            Kind.TREE,
            node.name,
            f'a change of the provider of "{consumer}" to "{provider}" is under way, or was '
            "interrupted",
            f'"vedur INI change-provider --node={node.name} --consumer={consumer} '
            f'--provider={provider}" finishes it',
        )


def _closed(node: NodeDetail, gone: Collection[str]) -> Iterator[Problem]:
    """Name a takeover that has closed a root and was not finished."""
    to = node.status.attrs.get(TAKEOVER_TO)
    deposed = any(is_other_epoch(error.error) for error in node.status.errors)
    if to is not None and deposed:
        yield Problem(
            Severity.FAIL,
            Kind.TREE,
            node.name,
            f'closed for a takeover by "{to}", and replaced by a failover since',
            f'"vedur INI resurrect", with the ini of {node.name}, keeps what only it has',
        )
    elif to in gone:
        yield Problem(
            Severity.FAIL,
            Kind.TREE,
            node.name,
            f'closed for writers: a takeover by "{to}" was begun, which does not answer',
            f'start {to}; if it is gone for good, "vedur INI takeover {node.name} --abort '
            f'--dead={to}" opens {node.name} again, or names the node that must take over',
        )
    elif to is not None:
        yield Problem(
            Severity.FAIL,
            Kind.TREE,
            node.name,
            f'closed for writers: a takeover by "{to}" is under way, or was interrupted',
            f'"vedur INI takeover {node.name} --node={to}" finishes it, with --abort undoes it',
        )


def _held_back(overview: Overview) -> Iterator[Problem]:
    """Report nodes whose watermark stays behind their position: the queue keeps all events since
    then."""
    nodes = {node.name: node for node in overview.nodes}
    for provider in overview.nodes:
        for consumer in provider.queue.consumers if provider.queue is not None else ():
            name = consumer.consumer_name.removeprefix(".").removesuffix(".watermark")
            node = nodes.get(name)
            if f".{name}.watermark" != consumer.consumer_name or node is None:
                continue
            tick, age = node.status.tick, node.tick_age
            if None in (tick, age, consumer.last_tick, consumer.lag):
                continue
            assert tick is not None and age is not None
            assert consumer.last_tick is not None and consumer.lag is not None
            if consumer.last_tick < tick and consumer.lag - age > _HELD_BACK:
                yield Problem(
                    Severity.WARN,
                    Kind.ROTATION,
                    provider.name,
                    f'node "{name}" holds back rotation: its position is tick {tick}, its '
                    f"watermark is tick {consumer.last_tick}, {consumer.lag / 3600:.0f} h old",
                    f"see that the worker of {name} and the nodes below it run",
                )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
