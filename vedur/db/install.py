"""Installs and upgrades the SQL of Vedur, in one transaction.

Each schema is in one of four states, and only the first two make us write:

* missing            all its files run;
* ours, other text   everything but `tables.sql` runs again, after the upgrade steps;
* ours, same text    nothing happens;
* foreign            upstream's extension or plain SQL: it is used as it is, never touched.

What we installed is recorded in `vedur.component` with the version and a digest of the text, so
a changed function is noticed without anybody having to remember to count a version up.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from enum import Enum

from vedur import __version__
from vedur.clock import SYSTEM, Backoff, Clock
from vedur.db.database import Database
from vedur.errors import DatabaseError, StateError
from vedur.sql import SCHEMAS, SqlFile, query, schema_files, upgrade_files

log = logging.getLogger(__name__)

#: Upstream's installer names a late function of a schema as the proof that it is new enough.
_PROOF = {"pgq": "pgq.get_batch_cursor", "londiste": "londiste.global_add_table"}
#: With pauses of up to two seconds: two minutes or so.
_TRIES = 60


class State(Enum):
    """What the database has of one schema."""

    MISSING = "missing"
    OUTDATED = "outdated"
    CURRENT = "current"
    NEWER = "newer"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Component:
    """One schema as found in a database."""

    schema: str
    state: State
    version: str | None


def digest(schema: str) -> str:
    """Return a fingerprint of the text that makes up a schema."""
    total = hashlib.sha256()
    for file in schema_files(schema):
        total.update(file.path.encode() + b"\0" + file.text.encode() + b"\0")
    return total.hexdigest()


def version_key(version: str) -> tuple[int, ...]:
    """Convert `0.10.2` to numbers, so that versions sort."""
    return tuple(int(part) for part in version.split(".")[:3])


def inspect(db: Database) -> list[Component]:
    """Read what the database has, schema by schema, in install order."""
    present = {row.schema for row in db.query(query("install", "present_schemas"), [list(SCHEMAS)])}
    ours: dict[str, tuple[str, str]] = {}
    if db.value(query("install", "has_component_table")):
        rows = db.query(query("install", "components"))
        ours = {row.schema: (row.version, row.digest) for row in rows}
    return [_component(schema, schema in present, ours.get(schema)) for schema in SCHEMAS]


def _component(schema: str, present: bool, record: tuple[str, str] | None) -> Component:
    if not present:
        return Component(schema, State.MISSING, None)
    if record is None:
        return Component(schema, State.FOREIGN, None)
    version, text = record
    if text == digest(schema):
        return Component(schema, State.CURRENT, version)
    if version_key(version) > version_key(__version__):
        return Component(schema, State.NEWER, version)
    return Component(schema, State.OUTDATED, version)


def plan(components: list[Component]) -> list[tuple[Component, list[SqlFile]]]:
    """Decide which files to run for which schema; pure."""
    steps = []
    for component in components:
        files = schema_files(component.schema)
        if component.state is State.MISSING:
            steps.append((component, list(files)))
        elif component.state is State.OUTDATED:
            old = version_key(component.version or "0")
            upgrades = [
                file
                for file in upgrade_files()
                if _upgrade_of(file) == component.schema and _upgrade_version(file) > old
            ]
            upgrades.sort(key=_upgrade_place)
            steps.append((component, upgrades + [f for f in files if not f.once]))
    return steps


def _upgrade_version(file: SqlFile) -> tuple[int, ...]:
    return version_key(file.path.rsplit("/", 1)[-1].split("_", 1)[0])


def _upgrade_place(file: SqlFile) -> tuple[tuple[int, ...], int]:
    # by numbers: as text 0.10.0 would come before 0.9.0
    return _upgrade_version(file), int(file.path.rsplit("/", 1)[-1].split("_", 2)[1])


def _upgrade_of(file: SqlFile) -> str:
    # `0.2.0_01_londiste_add_checksum.sql`: the schema follows the serial; pgq_node has its own "_"
    words = file.path.rsplit("/", 1)[-1].split("_", 2)[2]
    return max((s for s in SCHEMAS if words.startswith(s + "_")), key=len)


def install(db: Database, clock: Clock = SYSTEM) -> list[Component]:
    """Bring the database up to this version; returns what it found before.

    Safe to run again and again, and while workers run: one transaction, one lock, and nothing
    at all is written when everything is current. Whoever uses a table that the installer needs
    goes first: it waits for nobody while it holds a lock, but lets go of everything and tries
    again, for two minutes or so.
    """
    if not db.value(query("install", "has_plpgsql")):
        raise StateError(
            'language "plpgsql" is missing in this database: run "create extension plpgsql"'
        )
    log.info("plpgsql is installed")
    pauses = Backoff(first=0.1, cap=2.0)
    for turn in range(_TRIES):
        try:
            return _install(db, logging.DEBUG if turn else logging.INFO)
        except DatabaseError as error:
            if not error.is_transient:
                raise
            if not turn:
                log.info("Tables are in use: trying again until they are free")
            last = error
            clock.sleep(pauses.pause())
    raise StateError(
        f"tables of the schemas stayed in use ({last.message}): nothing was changed; look for long "
        "transactions in pg_stat_activity, or stop the workers, and run the command again"
    ) from last


def _install(db: Database, level: int) -> list[Component]:
    with db.transaction():
        db.execute(query("install", "lock"))
        components = inspect(db)
        todo = {component.schema: files for component, files in plan(components)}
        if todo:
            _lock_tables(db, todo)
            db.execute(query("install", "patience"))
            db.execute(query("install", "bootstrap"))
        for component in components:
            _install_one(db, component, todo.get(component.schema), level)
    return components


def _lock_tables(db: Database, todo: dict[str, list[SqlFile]]) -> None:
    """Lock the tables that the files will lock anyway, before anything else and without waiting.

    An upgrade that only brings other functions needs no lock of a table.
    """
    steps = set(upgrade_files())
    stepping = [schema for schema, files in todo.items() if steps.intersection(files)]
    asked = {"stepping": stepping, "running": list(todo)}
    names = [row.name for row in db.query(query("install", "tables_to_lock"), asked)]
    if names:
        tables = ", ".join(f"only {name}" for name in names)
        db.execute(query("install", "lock_tables").format(tables=tables))


def _install_one(
    db: Database, component: Component, files: list[SqlFile] | None, level: int
) -> None:
    """Install or upgrade one schema. `level` is that of lines which an earlier attempt has logged
    already."""
    schema = component.schema
    if component.state is State.NEWER:
        log.log(
            logging.WARNING if level == logging.INFO else level,
            "%s is newer (%s) than this program (%s): left alone",
            schema,
            component.version,
            __version__,
        )
        return
    if files is None:
        log.log(level, "%s is installed", schema)
        return
    verb = "Installing" if component.state is State.MISSING else "Upgrading"
    log.log(level, "%s %s", verb, schema)
    log.log(level, "  Reading from vedur/sql/%s", schema)
    for file in files:
        log.debug("  %s", file.path)
        db.execute(file.text)
    db.execute(query("install", "record"), [schema, __version__, digest(schema)])
    if schema in _PROOF:
        log.log(level, "%s is installed", _PROOF[schema])
