"""Checks of servers: version, clock, connections, schemas, rights, and the provider."""

from __future__ import annotations

from collections.abc import Iterator

from vedur.clock import Clock
from vedur.config import LondisteSettings
from vedur.db import Database, set_replication_role
from vedur.db.install import State, inspect
from vedur.errors import DatabaseError
from vedur.log import mask
from vedur.node.info import (
    NodeInfo,
    get_node_info,
    get_subscriber_info,
    has_schema,
    passes_nothing_on,
)
from vedur.node.position import get_counter
from vedur.ops.doctor.result import Finding, fail, names, ok, warn
from vedur.ops.rejoin.plan import Way, make_plan, read_found
from vedur.ops.session import Session
from vedur.sql import query

#: Versions of PostgreSQL that Vedur is written for.
_OLDEST, _NEWEST = 14, 18
#: The first minor release of a version that imports no snapshot of a session which is
#: just ending: before it, VACUUM might remove rows that the importer still sees.
_IMPORT_MENDED = {14: 25, 15: 20, 16: 16, 17: 12, 18: 7}
#: Seconds of difference between two clocks that confuse whoever reads lag and logs.
_SKEW = 2.0
#: Connections of a worker besides those of its tasks: its own, a listener, staging ahead, the page.
_OWN_CONNECTIONS = 6


def check_server(check: str, db: Database, clock: Clock) -> Iterator[Finding]:
    """Yield findings about a server's version, and its clock against that of this machine."""
    major = db.server_version // 10000
    version = f"PostgreSQL {major}.{db.server_version % 10000}"
    if major < _OLDEST:
        yield fail(check, f"{version} is too old", f"upgrade to {_OLDEST} or newer")
    elif major > _NEWEST:
        yield warn(check, f"{version} is newer than this Vedur knows", "look for a newer Vedur")
    else:
        yield ok(check, version + snapshot_note(db.server_version))
    if db.encoding == "SQL_ASCII":
        yield warn(
            "encoding",
            f"{check}: the database has no encoding (SQL_ASCII)",
            "text must be valid UTF-8: a first copy fails on other bytes, and events that have "
            "them are refused; dump the database into one with encoding UTF8",
        )
    before = clock.now()
    there = db.value(query("doctor", "now"))
    after = clock.now()
    # The server looked at its clock somewhere between: only what exceeds that counts.
    skew = max((there - after).total_seconds(), (before - there).total_seconds(), 0.0)
    if skew > _SKEW:
        side = "ahead of" if there > after else "behind"
        yield warn(
            "clock",
            f"{check}: {skew:.1f} s {side} this machine",
            "let both follow NTP: ticks carry the root's time, and lag is read from it",
        )
    else:
        yield ok("clock", f"{check}: within {_SKEW:.0f} s of this machine")


def snapshot_note(server_version: int) -> str:
    """Say what the release of a server lacks; '' where it lacks nothing.

    First copies and comparisons begin anew when the session that keeps their snapshot ends, so no
    row is lost by it; an upgrade is good for other programs (`pg_dump -j`) too.
    """
    major, minor = divmod(server_version, 10000)
    mended = _IMPORT_MENDED.get(major)
    if mended is None or minor >= mended:
        return ""
    return f"; {major}.{mended} mends the import of snapshots, until then copies look twice"


def check_schemas(db: Database) -> Iterator[Finding]:
    """Yield findings about what the database has of our SQL."""
    found = inspect(db)
    missing = [c.schema for c in found if c.state is State.MISSING]
    old = [c.schema for c in found if c.state is State.OUTDATED]
    newer = [c.schema for c in found if c.state is State.NEWER]
    foreign = [c.schema for c in found if c.state is State.FOREIGN]
    if missing:
        yield fail(
            "schemas", f"missing: {names(missing)}", "create-root or create-leaf installs them"
        )
    if old:
        yield warn(
            "schemas",
            f"of another version: {names(old)}",
            "run the create command of this node again: it upgrades them",
        )
    if newer:
        yield warn("schemas", f"newer than this program: {names(newer)}", "upgrade the program")
    if not (missing or old or newer):
        also = f"; upstream's own: {names(foreign)}" if foreign else ""
        yield ok("schemas", f"current{also}")


def check_path(db: Database) -> Iterator[Finding]:
    """Yield a finding about schemas in our path where everybody may create: an operator there can
    fit better."""
    found = [row.name for row in db.query(query("doctor", "open_path"))]
    if found:
        yield warn(
            "rights",
            f"in the search_path, and everybody may create there: {names(found)}",
            f"revoke create on schema {names(found)} from public: else what others make there can "
            "run with the rights of this role",
        )


def check_connections(db: Database, settings: LondisteSettings) -> Iterator[Finding]:
    """Yield findings about connections: are there enough for a worker?"""
    left = int(db.value(query("doctor", "connections_left")))
    need = settings.max_connections_per_node + _OWN_CONNECTIONS
    if left < need:
        yield warn(
            "connections",
            f"{left} left, a worker may need {need}",
            "raise max_connections of the server, or lower max_connections_per_node in the ini",
        )
    else:
        yield ok("connections", f"{left} left")


def check_worker_rights(session: Session) -> Iterator[Finding]:
    """Yield findings about the rights for what a worker does on the target beside its tables."""
    try:
        with session.db.transaction():
            set_replication_role(session.db, "replica")
        yield ok("rights", "may write as replica")
    except DatabaseError as error:
        yield fail("rights", mask(error.message), "see docs/reference/privileges.md")
    may_work = session.db.value(query("doctor", "may_work"))
    if may_work is False:
        yield fail(
            "rights",
            "may not create staging tables in schema vedur_work",
            "grant londiste_writer (or create on schema vedur_work) to the role of the ini",
        )


def _check_position(
    session: Session, info: NodeInfo, provider: Database, above: NodeInfo
) -> Iterator[Finding]:
    """Yield findings about the position: does this node stand where its consumer does? Without a
    worker nobody else looks."""
    counter = get_counter(provider, session.queue, int(info.worker_last_tick or 0))
    if counter.behind:
        yield fail(
            "position",
            f"transaction numbers of the provider are at {counter.now}, its ticks at "
            f"{counter.tick}: it was restored into another server",
            f'stop it, run "pg_resetwal --epoch={(counter.tick >> 32) + 1}", then "rejoin --force"',
        )
        return
    plan = make_plan(read_found(session.db, provider, session.queue, info, above))
    # a worker may have gone on between the two looks
    now = get_node_info(session.db, session.queue)
    if plan.way is Way.NOTHING or now is None or now.worker_last_tick != info.worker_last_tick:
        yield ok("position", f"tick {info.worker_last_tick}, on both sides")
    else:
        yield fail("position", f"lost: {plan.why}", 'run "rejoin", it says what it would do')


def check_provider(session: Session, info: NodeInfo) -> Iterator[Finding]:
    """Yield findings about the node that this one reads from."""
    name = info.provider_node
    try:
        provider = session.provider(info)
    except DatabaseError as error:
        yield fail(
            "provider",
            f"{name}: {mask(error.message)}",
            'see that it runs, and its location ("members"); remote_extra_connstr is added to it; '
            '"change-location" tells the nodes where it has moved to',
        )
        return
    yield from check_server("provider", provider, session.clock)
    there = get_node_info(provider, session.queue) if has_schema(provider) else None
    if there is None:
        yield fail("provider", f'{name} has no node for queue "{session.queue}"', "change-provider")
        return
    if passes_nothing_on(provider, there):
        yield fail(
            "provider",
            f"the SQL of branch {there.node_name} is of a version that passes no events on",
            f'run "create-branch" again on {there.node_name}, it brings its SQL up to date',
        )
    known = [item.node_name for item in get_subscriber_info(provider, session.queue)]
    if info.node_name not in known:
        yield fail(
            "provider",
            f'{there.node_name} does not know "{info.node_name}" as a subscriber',
            '"rejoin" registers it and says what else is needed',
        )
    else:
        yield from _check_position(session, info, provider, there)
    if provider.value(query("doctor", "may_consume")) is False:
        yield fail(
            "provider",
            "the role may not read batches there",
            "grant pgq_reader to it on the provider",
        )
