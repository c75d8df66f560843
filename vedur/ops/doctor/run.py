"""doctor: everything that replication needs, checked without changing anything.

Checks come in the order in which they depend on each other: the machine and the ini, the local
database, its node, the provider, the tables, the set as a whole. What cannot be checked because
something before it failed is left out. Findings are yielded as they come: some take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vedur.config import LondisteSettings
from vedur.errors import DatabaseError, PrivilegeError, VedurError
from vedur.log import mask
from vedur.node.info import NodeInfo, get_node_info, has_schema
from vedur.ops.doctor import machine, server, tables
from vedur.ops.doctor.result import Finding, Verdict, fail, ok, warn
from vedur.ops.session import Session
from vedur.status.overview import Overview, open_reader
from vedur.status.problems import Kind, Severity, problems
from vedur.status.snapshot import LONDISTE
from vedur.status.tree import OWN

__all__ = ["Finding", "Verdict", "doctor"]

#: Kinds of problems of a running set, with what to say where there is none.
_CALM = {
    Kind.NODE: "all nodes answer",
    Kind.TREE: "all nodes agree about who reads from whom",
    Kind.TICKER: "the ticker ticks",
    Kind.WORKER: "no worker reports an error",
    Kind.LAG: "no node is far behind",
    Kind.COPY: "no first copy is held up",
    Kind.QUARANTINE: "nothing is in quarantine",
    Kind.DDL: "no table was changed by hand",
    Kind.ROTATION: "the queue rotates, no consumer is missing",
    Kind.TRANSACTION: "no transaction is open for long",
}
#: For the role of a worker; commands need them, too.
_GRANTS = (
    "as owner of the database grant pgq_admin, londiste_writer to the role of the ini; "
    "docs/reference/privileges.md has all"
)


def doctor(settings: LondisteSettings) -> Iterator[Finding]:
    """Check the node of an ini."""
    yield from machine.check_ini(settings)
    with Session(settings) as session:
        info: NodeInfo | None = None
        found = []
        for finding in _guarded("database", lambda: _local(session)):
            found.append(finding)
            yield finding
        if all(finding.verdict is not Verdict.FAIL for finding in found):
            info = get_node_info(session.db, session.queue)
        if info is None:
            yield from machine.check_spark(settings, needed=True)
            return
        yield from machine.check_worker(settings)
        if not info.is_root:
            yield from _guarded("provider", lambda: server.check_provider(session, info))
            yield from _guarded("rights", lambda: server.check_worker_rights(session))
        yield from _guarded("tables", lambda: tables.check_tables(session, info))
        yield from _set(settings)
        yield from machine.check_spark(settings, needed=not info.is_root)


def _local(session: Session) -> Iterator[Finding]:
    """Yield findings about the local database, and whether it has a node."""
    try:
        db = session.db
    except DatabaseError as error:
        yield fail(
            "database",
            mask(error.message),
            'see that the server runs and that "db" in the ini is right (psql with the same words)',
        )
        return
    yield from server.check_server("database", db, session.clock)
    yield from server.check_schemas(db)
    yield from server.check_path(db)
    yield from server.check_connections(db, session.settings)
    if not has_schema(db) or get_node_info(db, session.queue) is None:
        yield fail(
            "node",
            f'no node for queue "{session.queue}" in this database',
            'run "create-root", or "create-leaf" with --provider',
        )


def _guarded(check: str, run: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; one that breaks is a finding itself."""
    try:
        yield from run()
    except PrivilegeError as error:
        yield fail("rights", mask(error.message), _GRANTS)
    except VedurError as error:
        yield fail(check, mask(error.message), "mend this first, the check could not be made")


def _set(settings: LondisteSettings) -> Iterator[Finding]:
    """Yield findings about the set as it runs, as the status page sees it; reads all nodes."""
    reader = open_reader(settings, "doctor")
    try:
        overview = reader.read()
    except VedurError as error:
        yield fail("set", mask(error.message), "mend this first, the set could not be read")
        return
    finally:
        reader.close()
    found = problems(overview, settings.web_max_lag)
    for kind, calm in _CALM.items():
        of_kind = [problem for problem in found if problem.kind is kind]
        for problem in of_kind:
            make = fail if problem.severity is Severity.FAIL else warn
            yield make(kind, f"{problem.node}: {problem.what}", problem.action)
        if not of_kind:
            yield ok(kind, _calm(kind, calm, overview))
    yield from check_versions(overview)
    for problem in found:
        if problem.kind is Kind.RIGHTS:
            yield warn("rights", f"{problem.node}: {problem.what}", problem.action)
    for node in overview.nodes:
        if node.withheld:
            parts = ", ".join(node.withheld)
            yield warn("rights", f"{node.name}: may not read {parts}", _GRANTS)


def check_versions(overview: Overview) -> Iterator[Finding]:
    """Yield findings about what each node is: nodes of ours of another version, and those of
    Londiste's."""
    known = {node.name: node.status.software for node in overview.nodes if node.status.software}
    londiste = sorted(name for name, what in known.items() if what.startswith(LONDISTE))
    other = {n: w for n, w in known.items() if w != OWN and n not in londiste}
    for name, what in sorted(other.items()):
        yield warn(
            "versions",
            f"{name} has the SQL of {what}, this program is {OWN}",
            f"run its create command again with one version of the program on all nodes: it brings "
            f"the SQL of {name} up to date",
        )
    if not other:
        mixed = ", ".join(f"{name}: {known[name]}" for name in londiste)
        yield ok("versions", f"{OWN} on all nodes" + (f" but {mixed}" if mixed else ""))


def _calm(kind: Kind, words: str, overview: Overview) -> str:
    local = overview.local
    if kind is Kind.LAG and local.status.type != "root" and local.lag is not None:
        return f"{words}; this one {local.lag:.1f} s, {local.backlog or 0} events"
    if kind is Kind.NODE:
        return f"{words}: {len(overview.nodes)}"
    return words
