"""compare: are the local tables what the provider has? Exact while both sides take writes.

Prints what Londiste printed (`Locking`, `Syncing`, `Counting`, `srcdb:`, `dstdb:`) through the
log, and beyond it which rows differ. The lock is the ticker's, for some milliseconds; see
`vedur/ops/moment.py`. A table's filter, its other name and its columns are honoured without being
asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from vedur.catalog.handlers import require_handlers
from vedur.catalog.quarantine import count_waiting
from vedur.catalog.tables import OK_STATES, TableInfo, get_table_list
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.log import spark_log
from vedur.names import parse_name, quote_ident
from vedur.node.info import NodeInfo
from vedur.ops.choose import choose, is_glob, meant
from vedur.ops.giveway import at_one_moment
from vedur.ops.moment import Moment, Nodes
from vedur.ops.session import Session, remote_connstr
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.compare import Borrowed, Buckets, Comparer, Differences, Pair, Sums
    from vedur.pipeline.session import SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The statement of the contract, which the engine answers slice by slice with the same number.
_STANDARD = re.compile(
    r"select count\(1\) as cnt, sum\(hashtext\((t\.\*|\(?_COLS_\)?)::text\)(::bigint)?\) as chksum"
    r" from only _TABLE_( t)?"
)
_TABLE = re.compile(
    r"(?:\bonly\s+)?_TABLE_(\s+(?:as\s+)?(?!where\b|group\b|order\b|limit\b)\w+)?", re.I
)
_COUNT_FMT = "%(cnt)d rows"


@dataclass(frozen=True)
class CompareOptions:
    """The command line's share."""

    tables: tuple[str, ...] = ()
    force: bool = False
    count_only: bool = False
    rows: bool = False
    limit: int = 100
    max_wait: float = 60.0

    def check(self) -> None:
        """Combinations that cannot be meant."""
        if self.count_only and self.rows:
            raise UsageError("--count-only names no rows: give it without --rows and --limit")


@dataclass(frozen=True)
class TableResult:
    """What a comparison of one table found."""

    table: str
    dest_table: str
    tick: int
    lock_free: bool
    source: Mapping[str, Any]
    target: Mapping[str, Any]
    match: bool
    differences: Differences | None = None
    quarantined: int = 0  # events of the table that wait in quarantine

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = asdict(self)
        if self.differences is None:
            del found["differences"]
        return found


@dataclass(frozen=True)
class CompareResult:
    """All tables; `bad` is the exit code."""

    tables: tuple[TableResult, ...] = field(default=())

    @property
    def bad(self) -> int:
        """How many tables differ."""
        return sum(not t.match for t in self.tables)


def compare(
    session: Session, options: CompareOptions, spark: SparkSession | None = None
) -> CompareResult:
    """Compare local tables with the provider's, all of them or those named."""
    options.check()
    info, tables = chosen_tables(session, options.tables)
    if not tables:
        return CompareResult()
    own = not (options.count_only or _is_standard(session))
    with counting(session, spark, own=own) as comparer:
        nodes = make_nodes(session, info, force=options.force, max_wait=options.max_wait)
        results = [_compare_table(session, comparer, nodes, table, options) for table in tables]
    return CompareResult(tuple(results))


def start_spark(session: Session) -> SparkSession:
    """A Spark session of the ini; loaded late, commands that move no data never need it."""
    from vedur.pipeline.session import start_session

    settings = session.settings
    name = f"{settings.job_name} compare"
    return start_session(
        name,
        settings.spark,
        spark_log(settings.logfile),
        echo=log.isEnabledFor(logging.DEBUG),
    )


def end_spark(spark: SparkSession) -> None:
    """End the session and its Java process."""
    from vedur.pipeline.session import stop_session

    stop_session(spark)


@contextmanager
def counting(
    session: Session, spark: SparkSession | None = None, *, own: bool = False
) -> Iterator[Comparer]:
    """Something that counts: in `spark`, or in what `_Lent` finds, or in nothing but its `own`."""
    from vedur.pipeline.compare import SparkComparer

    if spark is not None:
        yield SparkComparer(spark, session.settings.max_connections_per_node)
        return
    lent = _Lent(session, own)
    try:
        yield lent
    finally:
        lent.close()


class _Lent:
    """The session of the node's worker, if it runs here; else, or when that ends, one of our own.

    Ours starts before anything is looked at: nobody's snapshot is to wait for Java.
    """

    def __init__(self, session: Session, own: bool) -> None:
        from vedur.pipeline.compare import Borrowed, NobodyLends, socket_path

        self._session = session
        self._borrowed: Borrowed | None = None
        self._spark: SparkSession | None = None
        path = "" if own else socket_path(session.settings.pidfile)
        try:
            self._borrowed = Borrowed(path, self._limit) if path else None
        except NobodyLends as why:
            log.debug("no session to borrow at %s: %s", path, why)
        if self._borrowed is None:
            self._spark = start_spark(session)

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        return self._ask(lambda c: c.checksum(pair, count_only=count_only))

    def buckets(self, pair: Pair) -> Buckets:
        return self._ask(lambda c: c.buckets(pair))

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        return self._ask(lambda c: c.custom(pair, source_sql, target_sql))

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        return self._ask(lambda c: c.rows(pair, buckets, shown))

    def _ask(self, question: Callable[[Comparer], T]) -> T:
        from vedur.pipeline.compare import NobodyLends, SparkComparer

        if self._borrowed is not None:
            try:
                return question(self._borrowed)
            except NobodyLends as why:
                log.debug("not in the worker's session, going on in one of our own: %s", why)
                self._borrowed.close()
                self._borrowed = None
        if self._spark is None:
            self._spark = start_spark(self._session)
        return question(SparkComparer(self._spark, self._limit))

    @property
    def _limit(self) -> int:
        return self._session.settings.max_connections_per_node

    def close(self) -> None:
        """Give back what was lent, end what is ours."""
        if self._borrowed is not None:
            self._borrowed.close()
        if self._spark is not None:
            end_spark(self._spark)


def make_nodes(
    session: Session, info: NodeInfo, *, force: bool = False, max_wait: float = 60.0
) -> Nodes:
    """Both ends of the local node's subscription."""
    settings = session.settings
    if not info.provider_location or not info.worker_name:
        raise StateError(f'node "{info.node_name}" knows no location of its provider')
    return Nodes(
        provider=remote_connstr(settings, info.provider_location),
        target=settings.db,
        queue=session.queue,
        consumer=info.worker_name,
        clock=session.clock,
        max_wait=max_wait,
        lock_timeout=settings.lock_timeout,
        force=force,
    )


def chosen_tables(session: Session, asked: tuple[str, ...]) -> tuple[NodeInfo, list[TableInfo]]:
    """The local tables that can be compared; what is asked for by name and cannot be, is said."""
    info = session.require_node()
    if info.is_root:
        raise UsageError("the root has no provider to compare with: run this on another node")
    known = {t.table_name: t for t in get_table_list(session.db, session.queue)}
    local = {name: t for name, t in known.items() if t.local}
    if asked:
        for name in asked:
            if not is_glob(name) and meant(name, local) not in local:
                raise StateError(f"Table not subscribed: {meant(name, local)}")
        local = {name: local[name] for name in choose(asked, local)}
    require_handlers(local.values())
    return info, [t for t in local.values() if _synced(session, info, t)]


def _synced(session: Session, info: NodeInfo, table: TableInfo) -> bool:
    if not table.ready:
        log.warning("Table %s not synced yet, no point", table.table_name)
        return False
    there = {t.table_name: t for t in get_table_list(session.provider(info), session.queue)}
    state = there.get(table.table_name)
    if state is None or state.merge_state not in (*OK_STATES, None) or not state.local:
        log.warning("Table %s not ready yet on provider", table.table_name)
        return False
    return True


def plan_pair(session: Session, nodes: Nodes, table: TableInfo, where: str | None = None) -> Pair:
    """What to compare for a table of the catalog."""
    from vedur.pipeline.compare import make_pair

    shared = int(session.db.value(query("compare", "sharing"), [table.dest_table]) or 0) > 1
    provider = session.connect(nodes.provider, "provider_db")
    there = {t.table_name: t.dest_table for t in get_table_list(provider, session.queue)}
    pair = make_pair(
        provider,
        session.db,
        there.get(table.table_name, table.table_name),  # a provider may have its own name for it
        table.dest_table,
        condition=table.copy_condition,
        shared=shared,
        columns=table.columns,
        where=where,
    )
    if pair.ignored:
        log.warning(
            "%s: not compared, exist on one side only: %s",
            table.table_name,
            ", ".join(pair.ignored),
        )
    return replace(pair, name=table.table_name)


def warn_waiting(session: Session, table: TableInfo, then: str = "") -> int:
    """Say that events of the table wait in quarantine, which is a difference by itself."""
    name = table.table_name
    count = count_waiting(session.db, session.queue, name)
    if count:
        log.warning(
            "%s: %d event(s) wait in quarantine, so rows differ from the provider's: "
            "see quarantine list --table=%s%s",
            table.dest_table,
            count,
            name,
            then,
        )
    return count


def _compare_table(
    session: Session,
    comparer: Comparer,
    nodes: Nodes,
    table: TableInfo,
    options: CompareOptions,
) -> TableResult:
    log.info("Locking %s", table.table_name)
    waiting = warn_waiting(session, table)
    pair = plan_pair(session, nodes, table)
    log.info("Syncing %s", table.dest_table)

    def look(pair: Pair, moment: Moment) -> TableResult:
        log.info("Counting %s", table.dest_table)
        source, target, fmt, buckets = _count(session, comparer, pair, options)
        reach("compare.counted")
        log.info("srcdb: %s", fmt % source)
        log.info("dstdb: %s", fmt % target)
        match = source == target
        found = None
        if not match:
            log.warning("%s: Results do not match!", table.dest_table)
            if options.rows and not options.count_only:
                found = comparer.rows(pair, buckets or comparer.buckets(pair), options.limit)
                report_rows(table.dest_table, found)
        return TableResult(
            table.table_name,
            table.dest_table,
            moment.tick,
            moment.lock_free,
            source,
            target,
            match,
            found,
            waiting,
        )

    return at_one_moment(nodes, pair, look)


def _count(
    session: Session, comparer: Comparer, pair: Pair, options: CompareOptions
) -> tuple[dict[str, Any], dict[str, Any], str, Buckets | None]:
    """What is printed of both sides and how; where rows may be asked for, also by bucket."""
    settings = session.settings
    if options.count_only:
        sums = comparer.checksum(pair, count_only=True)
        return {"cnt": sums[0].rows}, {"cnt": sums[1].rows}, _COUNT_FMT, None
    if _is_standard(session):
        buckets = comparer.buckets(pair) if options.rows else None
        sums = (buckets.source, buckets.target) if buckets else comparer.checksum(pair)
        left, right = ({"cnt": s.rows, "chksum": s.a, "strong": s.strong} for s in sums)
        return left, right, settings.compare_fmt, buckets
    names = pair.target_names if pair.chosen else ()
    left, right = comparer.custom(
        pair,
        *(
            custom_sql(settings.compare_sql, side.name, side.columns, side.selected, names)
            for side in (pair.source, pair.target)
        ),
    )
    return left, right, settings.compare_fmt, None


def _is_standard(session: Session) -> bool:
    """Is `compare_sql` the statement whose number the engine gives by itself?"""
    return bool(_STANDARD.fullmatch(" ".join(session.settings.compare_sql.split())))


def custom_sql(
    text: str,
    table: str,
    columns: tuple[str, ...],
    condition: str,
    names: tuple[str, ...] = (),
) -> str:
    """An operator's `compare_sql` with its placeholders filled in.

    A table with a filter becomes a subquery under the alias that stands there, so the statement
    sees the rows that should be there and nothing else. With a column list (`names`, those of
    the target) it sees these columns and no others, under the same names on both sides.
    """
    name = parse_name(table).quoted
    filtered = bool(names) or condition != "(true) and (true)"
    chosen = "*"
    if names:
        pairs = zip(columns, map(quote_ident, names), strict=True)
        chosen = ", ".join(f"{expression} as {column}" for expression, column in pairs)
        columns = tuple(map(quote_ident, names))

    def table_text(found: re.Match[str]) -> str:
        alias = found[1] or ""
        if not filtered:
            return found[0].replace("_TABLE_", name)
        inner = f"(select {chosen} from only {name} as t where {condition})"
        return f"{inner}{alias or ' as t'}"

    listed = "(" + ", ".join(columns) + ")"
    return (
        _TABLE.sub(table_text, text).replace("(_COLS_)", listed).replace("_COLS_", f"row{listed}")
    )


def report_rows(dest: str, found: Differences) -> None:
    """One line for each row that is shown, and one that counts them all."""
    for row in found.rows:
        key = ", ".join(f"{name}={value}" for name, value in row.key.items())
        columns = f" columns: {', '.join(row.columns)}" if row.columns else ""
        log.info("%s: %s %s%s", dest, row.kind, key, columns)
    more = found.total - len(found.rows)
    log.info(
        "%s: %d missing, %d extra, %d different row(s)%s",
        dest,
        found.missing,
        found.extra,
        found.different,
        f", {more} not shown" if more > 0 else "",
    )
