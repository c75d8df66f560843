"""The overview as Prometheus metrics: base units, counters that only grow, one prefix.

`METRICS` declares them; the reference page is made from it (`metrics_page.py`). Values come from
a look at the databases, so counters survive a restart of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from vedur import __version__
from vedur.status.detail import NodeDetail
from vedur.status.overview import Overview
from vedur.status.problems import problems
from vedur.web.source import Look

#: Values of the labels after queue and node, and the value itself.
Values = Iterator[tuple[tuple[str, ...], float | None]]


@dataclass(frozen=True)
class Declared:
    """One metric of a node. A value of None is left out."""

    name: str
    help: str
    read: Callable[[NodeDetail], Values]
    labels: tuple[str, ...] = ()
    counter: bool = False


def _one(read: Callable[[NodeDetail], float | None]) -> Callable[[NodeDetail], Values]:
    def values(node: NodeDetail) -> Values:
        yield (), read(node)

    return values


def _of_queue(read: Callable[..., float | None]) -> Callable[[NodeDetail], Values]:
    def values(node: NodeDetail) -> Values:
        if node.queue is not None:
            yield (), read(node.queue)

    return values


def _of_batch(read: Callable[..., float | None]) -> Callable[[NodeDetail], Values]:
    def values(node: NodeDetail) -> Values:
        if node.batches:
            yield (), read(node.batches[0])

    return values


def _tables(node: NodeDetail) -> Values:
    if node.reachable:
        yield ("ok",), node.status.tables_ok
        yield ("copying",), node.status.tables_half
        yield ("elsewhere",), node.status.tables_ignored


def _stages(node: NodeDetail) -> Values:
    if node.batches:
        last = node.batches[0]
        for stage in ("stage", "merge", "commit", "finish"):
            yield (stage,), getattr(last, f"{stage}_seconds")


def _event_tables(node: NodeDetail) -> Values:
    for table in node.queue.tables if node.queue else ():
        yield (str(table.number),), table.bytes


def _consumers(name: str) -> Callable[[NodeDetail], Values]:
    def values(node: NodeDetail) -> Values:
        for consumer in node.queue.consumers if node.queue else ():
            yield (consumer.consumer_name,), getattr(consumer, name)

    return values


def _copies(name: str) -> Callable[[NodeDetail], Values]:
    def values(node: NodeDetail) -> Values:
        for copy in node.copies:
            yield (copy.table_name,), getattr(copy, name)

    return values


def _held(node: NodeDetail) -> Values:
    if node.held_by is not None:
        yield (node.held_by.consumer, node.held_by.node), node.held_by.seconds


def _sequences(node: NodeDetail) -> Values:
    for sequence in node.sequences:
        if sequence.local:
            yield (sequence.seq_name,), sequence.last_value


def _quarantine(node: NodeDetail) -> Values:
    for item in node.quarantine:
        yield (item.table_name,), item.events


def _errors(node: NodeDetail) -> float | None:
    return max(len(node.status.errors), len(node.replay_errors)) if node.reachable else None


def _longest(node: NodeDetail) -> float | None:
    return max((one.seconds for one in node.transactions), default=0.0) if node.reachable else None


METRICS: tuple[Declared, ...] = (
    Declared("vedur_node_up", "1 if the node answers", _one(lambda n: float(n.reachable))),
    Declared(
        "vedur_node_lag_seconds",
        "age of the first tick that the node has not applied, 0 if it has all",
        _one(lambda n: n.lag),
    ),
    Declared(
        "vedur_node_hop_lag_seconds",
        "how much older the tick that the node has applied is than that of its provider",
        _one(lambda n: n.status.hop_lag),
    ),
    Declared(
        "vedur_node_tree_disagreements",
        "what other nodes see otherwise about whom the node reads from, and who reads from it",
        _one(lambda n: float(len(n.status.disagreements)) if n.reachable else None),
    ),
    Declared(
        "vedur_node_tick_age_seconds",
        "age of the tick that the node has applied; grows to the ticker's idle period at rest",
        _one(lambda n: n.tick_age),
    ),
    Declared(
        "vedur_node_backlog_events",
        "events that the node has not applied, about",
        _one(lambda n: n.backlog),
    ),
    Declared(
        "vedur_node_tick_id",
        "the tick that the node has applied; on the root the newest",
        _one(lambda n: n.status.tick),
    ),
    Declared(
        "vedur_node_paused",
        "1 if the worker of the node is paused",
        _one(lambda n: float(n.status.paused) if n.reachable else None),
    ),
    Declared("vedur_node_errors", "errors that hold the node's workers up now", _one(_errors)),
    Declared("vedur_node_tables", "tables of the set by state on the node", _tables, ("state",)),
    Declared(
        "vedur_node_batches",
        "batches with events that the node has applied",
        _of_batch(lambda b: b.batch_nr),
        counter=True,
    ),
    Declared(
        "vedur_node_events_applied",
        "events that the node has applied",
        _of_batch(lambda b: b.events_total),
        counter=True,
    ),
    Declared(
        "vedur_node_last_batch_seconds",
        "time that the stages of the last batch took",
        _stages,
        ("stage",),
    ),
    Declared(
        "vedur_node_last_batch_events", "events of the last batch", _of_batch(lambda b: b.events)
    ),
    Declared(
        "vedur_node_quarantine_events", "events in quarantine, by table", _quarantine, ("table",)
    ),
    Declared(
        "vedur_node_longest_transaction_seconds",
        "age of the oldest open transaction that has lasted over a minute, 0 without one",
        _one(_longest),
    ),
    Declared(
        "vedur_copy_rows", "rows that a first copy has loaded", _copies("rows_done"), ("table",)
    ),
    Declared(
        "vedur_copy_estimated_rows",
        "rows that a first copy expects",
        _copies("rows_estimated"),
        ("table",),
    ),
    Declared(
        "vedur_copy_bytes", "bytes that a first copy has loaded", _copies("bytes_done"), ("table",)
    ),
    Declared(
        "vedur_sequence_published_value",
        "value of a sequence that the root has published last",
        _sequences,
        ("sequence",),
    ),
    Declared(
        "vedur_queue_events",
        "events written to the node's queue, by their numbers; a forced tick (wait-root, compare, "
        "a first copy) takes some 2000 of them, too",
        _of_queue(lambda q: q.events_total),
        counter=True,
    ),
    Declared(
        "vedur_queue_ticker_lag_seconds",
        "age of the newest tick of the node's queue",
        _of_queue(lambda q: q.ticker_lag),
    ),
    Declared(
        "vedur_queue_size_bytes", "size of the tables of events on disk", _event_tables, ("table",)
    ),
    Declared(
        "vedur_queue_rotation_age_seconds",
        "time since the tables of events were rotated",
        _of_queue(lambda q: q.since_rotation),
    ),
    Declared(
        "vedur_queue_held_seconds",
        "age of the tick before which the queue may forget events, by whom it keeps them for",
        _held,
        ("holder", "holder_node"),
    ),
    Declared(
        "vedur_queue_rotation_period_seconds",
        "time after which they are rotated",
        _of_queue(lambda q: q.rotation_period),
    ),
    Declared(
        "vedur_consumer_lag_seconds",
        "age of the tick that a consumer of the queue has finished",
        _consumers("lag"),
        ("consumer",),
    ),
    Declared(
        "vedur_consumer_pending_events",
        "events that a consumer has not finished, about",
        _consumers("pending_events"),
        ("consumer",),
    ),
    Declared(
        "vedur_consumer_unseen_seconds",
        "time since a consumer was last seen",
        _consumers("last_seen"),
        ("consumer",),
    ),
)

#: Not of a node: name, labels, help.
GENERAL = (
    ("vedur_up", (), "1 if the local database was reached at this look"),
    ("vedur_build_info", ("version",), "the version of the page, always 1"),
    ("vedur_problems", ("queue", "severity"), "lines under attention on the page"),
)


@dataclass(eq=False)  # a registry keeps collectors as keys
class _Collector(Collector):
    """One look as metric families."""

    look: Look
    max_lag: float

    def collect(self) -> Iterable[Metric]:
        up, build, trouble = (
            GaugeMetricFamily(name, text, labels=labels) for name, labels, text in GENERAL
        )
        up.add_metric([], float(self.look.failure is None and self.look.overview is not None))
        build.add_metric([__version__], 1.0)
        yield up
        yield build
        overview = self.look.overview
        if overview is None or self.look.failure is not None:
            return  # old values would look like a healthy set
        open_problems = problems(overview, self.max_lag)
        for severity in ("fail", "warn"):
            number = sum(problem.severity == severity for problem in open_problems)
            trouble.add_metric([overview.queue, severity], number)
        yield trouble
        for declared in METRICS:
            yield self._family(declared, overview)

    @staticmethod
    def _family(declared: Declared, overview: Overview) -> Metric:
        labels = ["queue", "node", *declared.labels]
        kind = CounterMetricFamily if declared.counter else GaugeMetricFamily
        family = kind(declared.name, declared.help, labels=labels)
        for node in overview.nodes:
            for extra, value in declared.read(node):
                if value is not None:
                    family.add_metric([overview.queue, node.name, *extra], float(value))
        return family


def render(look: Look, max_lag: float, accept: str = "") -> tuple[bytes, str]:
    """Return the body and its content type: Prometheus text, or OpenMetrics if the client accepts
    it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(look, max_lag))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
