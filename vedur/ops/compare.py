"""compare: are the local tables what the provider has? Exact while both sides take writes.

Prints what Londiste printed (`Locking`, `Syncing`, `Counting`, `srcdb:`, `dstdb:`) through the
log, and beyond it which rows differ. The lock is the ticker's, for some milliseconds; see
`vedur/node/moment.py`. A table's filter, its other name and its columns are honoured without being
asked for.

Exit code 0 is a promise: every table that was asked for (without names: every one that this node
has of the set, and at least one) was compared whole, all columns and all rows that belong here,
and is equal. So a table that cannot be compared is not passed over: it is named with the reason,
the others are compared, and the exit code says that equality is not proven.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vedur.catalog.tables import TableInfo
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
from vedur.node.moment import LAGGING, Moment, Nodes
from vedur.ops.compare_tables import (
    Counterparts,
    listed,
    local_tables,
    one_sided,
    pair_at_one_moment,
    plan_pair,
    provided_tables,
    warn_waiting,
)
from vedur.ops.session import Session

if TYPE_CHECKING:
    from vedur.pipeline.compare import Buckets, Comparer, Differences, Pair
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

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
    common_columns: bool = False  # columns that one side alone has are nobody's concern
    allow_rounding: bool = False  # nor are values that a type here has rounded
    node: str | None = (
        None  # to compare with; None: the provider, or the nearest that has the table
    )

    def check(self) -> None:
        """Raise for combinations that cannot be meant."""
        if self.count_only and self.rows:
            raise UsageError("--count-only names no rows: give it without --rows and --limit")


def compare(
    session: Session, options: CompareOptions, spark: SparkSession | None = None
) -> CompareResult:
    """Compare local tables with the provider's, all of them or those named."""
    from vedur.pipeline.compare import open_comparer

    options.check()
    info, tables = local_tables(session, options.tables)
    there = provided_tables(session, info) if tables else {}
    counterparts = Counterparts(session, info, options.node)
    reasons = {t.table_name: counterparts.why_not(t) for t in tables}
    found: list[TableResult] = []
    lagging = False
    for table in tables:
        if reason := reasons[table.table_name]:
            found.append(_not_compared(table, reason, said=True))
    ready = [t for t in tables if not reasons[t.table_name]]
    if ready:
        own = not (options.count_only or _is_standard(session))
        own |= any(t.mapping.rows is not None for t in ready)  # the shared session has no handlers
        with open_comparer(session.settings, spark, own=own) as comparer:
            for table in ready:
                if lagging:
                    found.append(_not_compared(table, LAGGING))
                    continue
                nodes = counterparts.nodes_of(table, force=options.force, max_wait=options.max_wait)
                result, lagging = _try_table(session, comparer, nodes, table, options)
                found.append(replace(result, node=counterparts.node_of(table) or ""))
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
    if pair.expected is not None and not (options.count_only or _is_standard(session)):
        raise StateError("compare_sql does not know its handler: compare it without that key")
    # A statement of the operator's own, or a count, says itself what it looks at.
    hashed = _is_standard(session) and not options.count_only
    reason = one_sided(pair) if hashed else ""
    if reason:
        log.warning("%s: %s", table.dest_table, reason)
    log.info("Syncing %s", table.dest_table)

    def look(pair: Pair, moment: Moment) -> TableResult:
        with comparer.expected(pair) as staged:
            log.info("Counting %s", table.dest_table)
            counted = _count(session, comparer, staged, options)
            reach("compare.counted")
            counted.report(staged.dest)
            why = _not_whole(staged, reason, hashed and counted.match, options)
            found = None
            if not counted.match:
                log.warning("%s: Results do not match!", table.dest_table)
                if options.rows and not options.count_only:
                    buckets = counted.buckets or comparer.buckets(staged)
                    found = comparer.rows(staged, buckets, options.limit)
                    report_rows(table.dest_table, found)
            return TableResult(
                table.table_name,
                table.dest_table,
                moment.tick,
                moment.lock_free,
                counted.source,
                counted.target,
                counted.match,
                found,
                waiting,
                reason=why,
                left_out=counted.left_out,
            )

    return pair_at_one_moment(nodes, pair, look)


def _not_whole(pair: Pair, columns: str, look: bool, options: CompareOptions) -> str:
    """Return why an equal table is not proven equal; `columns` is what was said of them. With
    `look` it reads which values the target's types cannot hold."""
    from vedur.pipeline.compare import rounded

    reasons = [columns] if columns and not options.common_columns else []
    lost = rounded(pair) if look else []
    if lost:
        said = f"values that the type here cannot hold: {', '.join(lost)}"
        log.warning("%s: %s", pair.dest, said)
        reasons += [] if options.allow_rounding else [said]
    return "; ".join(reasons)


def _is_standard(session: Session) -> bool:
    """Tell whether `compare_sql` is the statement whose number the engine gives by itself."""
    from vedur.pipeline.compare import is_standard

    return is_standard(session.settings.compare_sql)


@dataclass(frozen=True)
class _Counted:
    """What is printed of both sides, and how: sums, or a row of the operator's own statement."""

    source: dict[str, Any]
    target: dict[str, Any]
    fmt: str
    buckets: Buckets | None = None  # the sums by bucket, where rows may be asked for
    left_out: int | None = None  # rows that the condition leaves out, where that is counted

    @property
    def match(self) -> bool:
        """Are both sides equal, as far as was looked at?"""
        return self.source == self.target

    def report(self, dest: str) -> None:
        """Log both sides, and what is not among the rows."""
        log.info("srcdb: %s", self.fmt % self.source)
        log.info("dstdb: %s", self.fmt % self.target)
        if self.left_out:
            log.info(
                "%s: the condition of this part leaves out %s of the provider",
                dest,
                "1 row" if self.left_out == 1 else f"{self.left_out} rows",
            )


def _count(session: Session, comparer: Comparer, pair: Pair, options: CompareOptions) -> _Counted:
    """Read what is printed of both sides."""
    from vedur.pipeline.compare import custom_sql

    settings = session.settings
    counted = pair.source.counts_left_out
    if options.count_only:
        sums = comparer.checksum(pair, count_only=True)
        left_out = sums[0].left_out if counted else None
        numbers = {"cnt": sums[0].rows}, {"cnt": sums[1].rows}
        return _Counted(*numbers, _COUNT_FMT, left_out=left_out)
    if _is_standard(session):
        buckets = comparer.buckets(pair) if options.rows else None
        sums = (buckets.source, buckets.target) if buckets else comparer.checksum(pair)
        left, right = ({"cnt": s.rows, "chksum": s.a, "strong": s.strong} for s in sums)
        left_out = sums[0].left_out if counted else None
        return _Counted(left, right, settings.compare_fmt, buckets, left_out)
    names = pair.target_names if pair.chosen else ()
    left, right = comparer.custom(
        pair,
        *(
            custom_sql(settings.compare_sql, side.name, side.columns, side.selected, names)
            for side in (pair.source, pair.target)
        ),
    )
    return _Counted(left, right, settings.compare_fmt)


def report_rows(dest: str, found: Differences) -> None:
    """Log one line for each row that is shown, and one that counts them all."""
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


# -- what was found, and the exit code and last line that follow from it; pure --------------------

#: Exit codes up to this are a number of tables that differ; an error's own code is added to
#: NOT_PROVEN (see `errors_from` of the command). 130 stays what a shell makes of ^C.
MAX_DIFFERENT, NOT_PROVEN = 99, 100


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
    node: str = ""  # compared with this one; empty for the provider
    #: rows of the provider that the condition of a part leaves out; None: they were not counted
    left_out: int | None = None

    @property
    def status(self) -> Status:
        """A difference that was seen is one, whatever else was not looked at."""
        if self.compared and not self.match:
            return Status.DIFFERENT
        return Status.NOT_PROVEN if self.reason else Status.EQUAL

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
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
        """Return the local names of the tables that have this status."""
        return [t.dest_table for t in self.tables if t.status is status]

    def summary(self, counted: bool = False) -> str:
        """Return the last line; `counted`: only numbers of rows were compared."""
        parts = []
        equal = "with equal numbers of rows" if counted else "equal"
        for status, word in (
            (Status.EQUAL, equal),
            (Status.DIFFERENT, "different"),
            (Status.NOT_PROVEN, "not proven equal"),
        ):
            names = self.named(status)
            if names or status is Status.EQUAL:
                said = "" if status is Status.EQUAL else f" ({listed(names)})"
                parts.append(f"{len(names)} {word}{said}")
        text = f"Compared {_tables(len(self.tables))}: {', '.join(parts)}"
        if self.elsewhere:
            text += f"; {_tables(self.elsewhere)} of the set not on this node"
        return text


def _tables(count: int) -> str:
    return f"{count} table" if count == 1 else f"{count} tables"
