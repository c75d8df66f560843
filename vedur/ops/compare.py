"""compare: are the local tables what the provider has? Exact while both sides take writes.

Prints what Londiste printed (`Locking`, `Syncing`, `Counting`, `srcdb:`, `dstdb:`) through the
log, and beyond it which rows differ. The lock is the ticker's, for some milliseconds; see
`vedur/ops/moment.py`. A table's filter, its other name and its columns are honoured without being
asked for.

Exit code 0 is a promise: every table that was asked for (without names: every one that this node
has of the set, and at least one) was compared whole, all columns and all rows that belong here,
and is equal. So a table that cannot be compared is not passed over: it is named with the reason,
the others are compared, and the exit code says that equality is not proven.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from vedur.catalog.handlers import require_handlers, unknown_handler
from vedur.catalog.quarantine import count_waiting
from vedur.catalog.tables import OK_STATES, TableInfo, get_table_list, sharing
from vedur.errors import (
    ConfigError,
    ConnectError,
    InternalError,
    LaggingError,
    StateError,
    UsageError,
    VedurError,
)
from vedur.failpoint import reach
from vedur.log import spark_log
from vedur.names import parse_name, quote_ident
from vedur.node.info import NodeInfo
from vedur.ops.choose import choose, is_glob, meant
from vedur.ops.giveway import at_one_moment
from vedur.ops.moment import LAGGING, Moment, Nodes
from vedur.ops.session import Session, remote_connstr

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
#: Exit codes up to this are a number of tables that differ; an error's own code is added to
#: NOT_PROVEN (see `errors_from` of the command). 130 stays what a shell makes of ^C.
MAX_DIFFERENT, NOT_PROVEN = 99, 100
#: Tables that the last line names of each kind.
_NAMED = 10


@dataclass(frozen=True)
class CompareOptions:
    """The command line's share."""

    tables: tuple[str, ...] = ()
    force: bool = False
    count_only: bool = False
    rows: bool = False
    limit: int = 100
    max_wait: float = 60.0
    common_columns: bool = False  # columns that one side alone has are nobody's concern
    allow_rounding: bool = False  # nor are values that a type here has rounded

    def check(self) -> None:
        """Combinations that cannot be meant."""
        if self.count_only and self.rows:
            raise UsageError("--count-only names no rows: give it without --rows and --limit")


class Status(StrEnum):
    """What is known of a table after a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class TableResult:
    """What a comparison of one table found."""

    table: str
    dest_table: str
    tick: int = 0
    lock_free: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    match: bool = False  # what was compared is equal
    differences: Differences | None = None
    quarantined: int = 0  # events of the table that wait in quarantine
    compared: bool = True
    reason: str = ""  # why it was not compared, or not whole

    @property
    def status(self) -> Status:
        """A difference that was seen is one, whatever else was not looked at."""
        if self.compared and not self.match:
            return Status.DIFFERENT
        return Status.NOT_PROVEN if self.reason else Status.EQUAL

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = {**asdict(self), "status": self.status.value}
        if self.differences is None:
            del found["differences"]
        return found


@dataclass(frozen=True)
class CompareResult:
    """All tables, in their order; `elsewhere` counts those that the provider has beside."""

    tables: tuple[TableResult, ...] = field(default=())
    elsewhere: int = 0
    lagging: bool = False

    @property
    def bad(self) -> int:
        """How many tables differ."""
        return len(self.named(Status.DIFFERENT))

    @property
    def exit_code(self) -> int:
        """0 if all are equal; else how many differ; else that some are not proven, and why."""
        if self.bad:
            return min(MAX_DIFFERENT, self.bad)
        if self.lagging:
            return NOT_PROVEN + LaggingError.exit_code
        return 0 if self.tables and not self.named(Status.NOT_PROVEN) else NOT_PROVEN

    def named(self, status: Status) -> list[str]:
        """Local names of tables of which that is known."""
        return [t.dest_table for t in self.tables if t.status is status]

    def summary(self, counted: bool = False) -> str:
        """The last line; `counted`: only numbers of rows were compared."""
        parts = []
        equal = "with equal numbers of rows" if counted else "equal"
        for status, word in (
            (Status.EQUAL, equal),
            (Status.DIFFERENT, "different"),
            (Status.NOT_PROVEN, "not proven equal"),
        ):
            names = self.named(status)
            if names or status is Status.EQUAL:
                said = "" if status is Status.EQUAL else f" ({_listed(names)})"
                parts.append(f"{len(names)} {word}{said}")
        text = f"Compared {_tables(len(self.tables))}: {', '.join(parts)}"
        if self.elsewhere:
            text += f"; {_tables(self.elsewhere)} of the set not on this node"
        return text


def _tables(count: int) -> str:
    return f"{count} table" if count == 1 else f"{count} tables"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def compare(
    session: Session, options: CompareOptions, spark: SparkSession | None = None
) -> CompareResult:
    """Compare local tables with the provider's, all of them or those named."""
    options.check()
    info, tables = local_tables(session, options.tables)
    there = _provided(session, info) if tables else {}
    reasons = {t.table_name: unready(t, there) for t in tables}
    found: list[TableResult] = []
    lagging = False
    for table in tables:
        if reason := reasons[table.table_name]:
            found.append(_not_compared(table, reason, said=True))
    ready = [t for t in tables if not reasons[t.table_name]]
    if ready:
        own = not (options.count_only or _is_standard(session))
        with counting(session, spark, own=own) as comparer:
            nodes = make_nodes(session, info, force=options.force, max_wait=options.max_wait)
            for table in ready:
                if lagging:
                    found.append(_not_compared(table, LAGGING))
                    continue
                result, lagging = _try_table(session, comparer, nodes, table, options)
                found.append(result)
    order = {t.table_name: at for at, t in enumerate(tables)}
    found.sort(key=lambda r: order[r.table])
    here = {t.table_name for t in tables}
    elsewhere = [name for name, t in there.items() if t.local and name not in here]
    answer = CompareResult(tuple(found), 0 if options.tables else len(elsewhere), lagging)
    level = logging.INFO if answer.exit_code == 0 else logging.WARNING
    log.log(level, "%s", answer.summary(options.count_only))
    return answer


def _not_compared(table: TableInfo, reason: str, *, said: bool = False) -> TableResult:
    head = "" if said else f"{table.dest_table}: not compared: "
    log.warning("%s%s", head, reason)
    return TableResult(table.table_name, table.dest_table, compared=False, reason=reason)


def _try_table(
    session: Session,
    comparer: Comparer,
    nodes: Nodes,
    table: TableInfo,
    options: CompareOptions,
) -> tuple[TableResult, bool]:
    """Compare one table. What is wrong with it alone does not keep the others from being compared;
    the second value says that the worker lags, which holds for all of them."""
    try:
        return _compare_table(session, comparer, nodes, table, options), False
    except (ConfigError, ConnectError, InternalError):
        raise
    except VedurError as error:
        return _not_compared(table, error.message), isinstance(error, LaggingError)


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


def local_tables(session: Session, asked: tuple[str, ...]) -> tuple[NodeInfo, list[TableInfo]]:
    """The node, and its tables that are asked for."""
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
    return info, list(local.values())


def chosen_tables(session: Session, asked: tuple[str, ...]) -> tuple[NodeInfo, list[TableInfo]]:
    """The local tables that can be compared; what cannot be, is said."""
    info, tables = local_tables(session, asked)
    require_handlers(tables)
    there = _provided(session, info) if tables else {}
    ready = []
    for table in tables:
        if reason := unready(table, there):
            log.warning("%s", reason)
        else:
            ready.append(table)
    return info, ready


def _provided(session: Session, info: NodeInfo) -> dict[str, TableInfo]:
    """The tables of the set as the provider has them."""
    tables = get_table_list(session.provider(info), session.queue)
    return {t.table_name: t for t in tables}


def unready(table: TableInfo, there: Mapping[str, TableInfo]) -> str:
    """Why the two sides of a table cannot be put beside each other yet; empty if they can."""
    handler = unknown_handler(table)
    if handler is not None:
        return f'Table {table.table_name} has handler "{handler}", which Vedur does not know'
    if not table.ready:
        return f"Table {table.table_name} not synced yet, no point"
    state = there.get(table.table_name)
    if state is None or state.merge_state not in (*OK_STATES, None) or not state.local:
        return f"Table {table.table_name} not ready yet on provider"
    return ""


def plan_pair(session: Session, nodes: Nodes, table: TableInfo, where: str | None = None) -> Pair:
    """What to compare for a table of the catalog."""
    from vedur.pipeline.compare import make_pair

    others = sharing(session.db, session.queue, table)
    if others and not table.copy_condition:
        raise StateError(
            f'"{table.dest_table}" has rows of other tables, too ({_listed(others)}), and '
            f'"{table.table_name}" has no condition that tells its rows from theirs: '
            "which rows should be there cannot be told"
        )
    provider = session.connect(nodes.provider, "provider_db")
    there = {t.table_name: t.dest_table for t in get_table_list(provider, session.queue)}
    pair = make_pair(
        provider,
        session.db,
        there.get(table.table_name, table.table_name),  # a provider may have its own name for it
        table.dest_table,
        condition=table.copy_condition,
        shared=bool(others),
        columns=table.columns,
        where=where,
    )
    return replace(pair, name=table.table_name)


def one_sided(pair: Pair) -> str:
    """What to say of columns that exist on one side only, empty if there are none."""
    if not pair.ignored:
        return ""
    return f"not compared, exist on one side only: {', '.join(pair.ignored)}"


def warn_waiting(session: Session, table: TableInfo, then: str = "") -> int:
    """Say that events of the table wait in quarantine, which is a difference by itself."""
    name = table.table_name
    count = count_waiting(session.db, session.queue, name)
    if count:
        log.warning(
            "%s: %d event(s) wait in quarantine, so rows may differ from the provider's: "
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
    # A statement of the operator's own, or a count, says itself what it looks at.
    hashed = _is_standard(session) and not options.count_only
    reason = one_sided(pair) if hashed else ""
    if reason:
        log.warning("%s: %s", table.dest_table, reason)
    log.info("Syncing %s", table.dest_table)

    def look(pair: Pair, moment: Moment) -> TableResult:
        log.info("Counting %s", table.dest_table)
        source, target, fmt, buckets = _count(session, comparer, pair, options)
        reach("compare.counted")
        log.info("srcdb: %s", fmt % source)
        log.info("dstdb: %s", fmt % target)
        match = source == target
        why = _not_whole(pair, reason, hashed and match, options)
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
            reason=why,
        )

    return at_one_moment(nodes, pair, look)


def _not_whole(pair: Pair, columns: str, look: bool, options: CompareOptions) -> str:
    """Why an equal table is not proven equal; `columns` is what was said of them."""
    from vedur.pipeline.compare import rounded

    reasons = [columns] if columns and not options.common_columns else []
    lost = rounded(pair) if look else []
    if lost:
        said = f"values that the type here cannot hold: {', '.join(lost)}"
        log.warning("%s: %s", pair.dest, said)
        reasons += [] if options.allow_rounding else [said]
    return "; ".join(reasons)


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
