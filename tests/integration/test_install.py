"""The installer: fresh, again, upgrade, foreign schemas, two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fixtures.pg import Servers, TestServer
from vedur import __version__
from vedur import db as vdb
from vedur.db import install as installer
from vedur.db.install import State, inspect, install
from vedur.errors import DatabaseError
from vedur.sql import SCHEMAS

pytestmark = pytest.mark.every_version


def _states(db: vdb.Database) -> dict[str, State]:
    return {c.schema: c.state for c in inspect(db)}


def test_fresh_install_then_nothing_to_do(bare_db: vdb.Database) -> None:
    assert set(_states(bare_db).values()) == {State.MISSING}
    install(bare_db)
    bare_db.commit()
    before = bare_db.query("select schema, installed_at from vedur.component order by 1")
    assert {row.schema for row in before} == set(SCHEMAS)
    assert set(_states(bare_db).values()) == {State.CURRENT}
    bare_db.commit()
    install(bare_db)
    bare_db.commit()
    after = bare_db.query("select schema, installed_at from vedur.component order by 1")
    assert after == before


def test_changed_text_runs_again_and_keeps_data(db: vdb.Database) -> None:
    db.call("pgq.create_queue", "kept")
    db.execute("update vedur.component set digest = 'older' where schema = 'pgq'")
    db.execute("drop function pgq.version()")
    db.commit()
    assert _states(db)["pgq"] is State.OUTDATED
    install(db)
    db.commit()
    assert _states(db)["pgq"] is State.CURRENT
    assert db.value("select pgq.version()")
    assert db.value("select queue_name from pgq.queue") == "kept"


def test_newer_version_is_left_alone(db: vdb.Database, caplog: pytest.LogCaptureFixture) -> None:
    db.execute("update vedur.component set digest = 'x', version = '99.0.0' where schema = 'pgq'")
    db.commit()
    install(db)
    assert "pgq is newer (99.0.0)" in caplog.text
    assert db.value("select digest from vedur.component where schema = 'pgq'") == "x"


def test_failure_leaves_nothing(bare_db: vdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real = installer.schema_files

    def broken(schema: str) -> tuple[installer.SqlFile, ...]:
        files = real(schema)
        if schema == "londiste":
            return (*files, installer.SqlFile("londiste/bad.sql", "select 1/0"))
        return files

    monkeypatch.setattr(installer, "schema_files", broken)
    with pytest.raises(DatabaseError, match="division by zero"):
        install(bare_db)
    bare_db.rollback()
    assert set(_states(bare_db).values()) == {State.MISSING}
    assert bare_db.query("select 1 from pg_namespace where nspname in ('pgq', 'vedur')") == []


def _older(db: vdb.Database, version: str, *schemas: str) -> None:
    """Let the record say that the schemas are of an earlier version, with another text."""
    db.execute(
        "update vedur.component set digest = 'older', version = %s where schema = any (%s)",
        [version, list(schemas)],
    )
    db.commit()


def _steps(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, str]) -> None:
    files = tuple(installer.SqlFile(f"upgrades/{name}.sql", text) for name, text in steps)
    monkeypatch.setattr(installer, "upgrade_files", lambda: files)


_NOTE = "insert into vedur.taken (step) values ('{}')"


def test_upgrade_steps_run_in_the_order_of_versions_and_only_newer_ones(
    db: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table changes by its steps, before the functions; its rows stay, and it runs once."""
    db.execute("create table vedur.taken (nr serial, step text)")
    db.call("pgq.create_queue", "kept")
    monkeypatch.setattr(installer, "__version__", "0.10.0")
    _older(db, "0.9.0", "pgq", "londiste")
    names = [
        "0.10.0_02_pgq_fill", "0.10.0_10_pgq_last", "0.9.1_01_pgq_add", "0.9.0_01_pgq_had",
        "0.2.0_01_pgq_had", "0.9.1_01_pgq_node_none", "0.9.2_01_londiste_own",
    ]  # fmt: skip
    texts = {name: _NOTE.format(name) for name in names}
    texts["0.9.1_01_pgq_add"] += "; alter table pgq.queue add queue_added text"
    texts["0.10.0_02_pgq_fill"] += "; update pgq.queue set queue_added = queue_name"
    _steps(monkeypatch, *texts.items())
    install(db)
    db.commit()
    taken = [row.step for row in db.query("select step from vedur.taken order by nr")]
    expected = ["0.9.1_01_pgq_add", "0.10.0_02_pgq_fill", "0.10.0_10_pgq_last"]
    assert taken == [*expected, "0.9.2_01_londiste_own"]
    assert db.value("select queue_added from pgq.queue") == "kept"
    assert set(_states(db).values()) == {State.CURRENT}
    versions = {row.version for row in db.query("select version from vedur.component")}
    assert versions == {"0.10.0", __version__}
    install(db)
    assert db.value("select count(*) from vedur.taken") == len(taken)


def test_a_fresh_install_takes_no_upgrade_step(
    bare_db: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _steps(monkeypatch, ("99.0.0_01_pgq_fails", "select 1/0"))
    install(bare_db)
    assert set(_states(bare_db).values()) == {State.CURRENT}


def test_an_upgrade_step_that_fails_leaves_everything_as_it_was(
    db: vdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _older(db, "0.0.1", "pgq", "londiste")
    _steps(
        monkeypatch,
        ("0.0.2_01_pgq_add", "alter table pgq.queue add queue_added text"),
        ("0.0.2_02_londiste_fails", "select 1/0"),
    )
    before = db.query("select * from vedur.component order by schema")
    db.execute("drop function pgq.version()")  # what the first schema would have brought back
    db.commit()
    with pytest.raises(DatabaseError, match="division by zero"):
        install(db)
    db.rollback()
    assert db.query("select * from vedur.component order by schema") == before
    added = "select count(*) from pg_attribute where attname = 'queue_added'"
    assert db.value(added) == 0
    assert db.value("select to_regprocedure('pgq.version()')") is None
    assert _states(db)["pgq"] is State.OUTDATED
    _steps(monkeypatch, ("0.0.2_01_pgq_add", "alter table pgq.queue add queue_added text"))
    install(db)
    assert db.value(added) == 1


def test_two_installers_at_once(bare_db: vdb.Database) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with vdb.connect(bare_db.connstr) as mine:
                install(mine)
                mine.commit()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(_states(bare_db).values()) == {State.CURRENT}


def test_upstream_is_used_and_left_intact(
    servers: Servers, make_db_on: Callable[..., vdb.Database]
) -> None:
    db = make_db_on(servers.get(15), "upstream")
    db.call("pgq.create_queue", "kept")
    db.call("pgq.register_consumer", "kept", "c")
    db.call("pgq.insert_event", "kept", "type", "data")
    db.execute("create table t (id int primary key)")
    db.execute(
        "create trigger captured after insert on t for each row "
        "execute function pgq.logutriga('kept')"
    )
    db.execute("insert into t values (1)")
    db.execute("grant select on pgq.event_template to public")  # the owner's own decision
    db.commit()
    before = _everything(db)
    assert len(before) > 100
    assert {line for line in before if line.startswith("row ") and "kept" in line}
    states = {c.schema: c.state for c in install(db)}
    db.commit()
    assert states["pgq"] is State.FOREIGN
    assert states["pgq_node"] is State.FOREIGN
    assert states["londiste"] is State.FOREIGN
    assert _everything(db) == before
    assert db.value("select vedur.version()")
    assert _states(db)["vedur"] is State.CURRENT


_UPSTREAMS = """
with s as (
    select n.oid, n.xmin as written, n::text as line from pg_namespace n
    where n.nspname in ('pgq', 'pgq_node', 'londiste')
)
select 'schema ' || s.oid || s.written || s.line::text from s
union all
select 'function ' || p.oid || p.xmin || p::text from pg_proc p join s on s.oid = p.pronamespace
union all
select concat_ws(' ', 'relation', c.oid, c.relname, c.relkind, c.relowner, c.relfilenode,
    c.relhastriggers, c.relacl::text, c.reloptions::text)
from pg_class c join s on s.oid = c.relnamespace
union all
select 'column ' || a.attrelid || a.xmin || a::text from pg_attribute a
    join pg_class c on c.oid = a.attrelid join s on s.oid = c.relnamespace
union all
select concat_ws(' ', 'trigger', t.oid, t.xmin, pg_get_triggerdef(t.oid), t.tgenabled)
from pg_trigger t
union all
select 'constraint ' || k.oid || k.xmin || pg_get_constraintdef(k.oid)
from pg_constraint k join s on s.oid = k.connamespace
union all
select 'default ' || d.oid || d.xmin || pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d
    join pg_class c on c.oid = d.adrelid join s on s.oid = c.relnamespace
union all
select 'default right ' || d.oid || d::text
from pg_default_acl d join s on s.oid = d.defaclnamespace
union all
select 'member ' || d::text from pg_depend d where d.deptype = 'e' and d.refclassid =
    'pg_extension'::regclass
"""


def _everything(db: vdb.Database) -> list[str]:
    """All that upstream's schemas hold: definitions, rights, triggers, extensions, rows."""
    found = [str(row[0]) for row in db.query(_UPSTREAMS)]
    tables = db.query(
        "select c.oid::regclass::text as name from pg_class c where c.relkind in ('r', 'S') "
        "and c.relnamespace::regnamespace::text in ('pgq', 'pgq_node', 'londiste')"
    )
    for table in tables:
        rows = db.query(f"select row(r.*)::text as line from {table.name} r")
        found += [f"row {table.name} {row.line}" for row in rows]
    return sorted(found)


def test_ours_on_top_of_upstreams_queue(
    servers: Servers, make_db_on: Callable[..., vdb.Database]
) -> None:
    server = servers.get(15)
    server.upstream_template()  # skips where the extension is missing
    db = make_db_on(server, "bare")
    db.execute("create extension pgq")
    db.commit()
    states = {c.schema: c.state for c in install(db)}
    db.commit()
    assert states["pgq"] is State.FOREIGN
    assert states["pgq_node"] is State.MISSING
    assert db.one("select * from pgq_node.get_node_info('nothing')").ret_code == 404


def test_an_empty_schema_left_behind_counts_as_missing(bare_db: vdb.Database) -> None:
    for schema in SCHEMAS:
        bare_db.execute(f"create schema {schema}")
    bare_db.commit()
    assert set(_states(bare_db).values()) == {State.MISSING}
    install(bare_db)
    bare_db.commit()
    assert set(_states(bare_db).values()) == {State.CURRENT}
    assert bare_db.value("select pgq.create_queue('q')") == 1


def test_roles_without_createrole_get_a_warning_not_a_failure(
    servers: Servers, pg_version: int
) -> None:
    # Roles belong to the whole server: only a new one is sure to have none of ours.
    server = TestServer(servers.private(pg_version))
    server.admin.execute("create role plain_installer login")
    server.admin.execute("create database plain owner plain_installer")
    warnings: list[str] = []
    with vdb.connect(server.connstr("plain", "plain_installer")) as plain:
        plain.raw.add_notice_handler(
            lambda note: warnings.append(f"{note.severity}: {note.message_primary}")
        )
        install(plain)
        plain.commit()
        for role in ("pgq_reader", "pgq_writer", "pgq_admin"):
            assert (
                f'WARNING: role "{role}" is missing and cannot be created by "plain_installer": '
                f'ask a role with CREATEROLE to run "create role {role}"'
            ) in warnings
        missing = "WARNING: roles londiste_reader and londiste_writer not set up: "
        assert [w for w in warnings if w.startswith(missing)]
        ours = "select count(*) from pg_roles where rolname ~ '^(pgq|londiste)_'"
        assert plain.value(ours) == 0
        assert set(_states(plain).values()) == {State.CURRENT}

        # and the owner can work with it, from the event to the consumer
        plain.call("pgq.create_queue", "q")
        plain.call("pgq.register_consumer", "q", "c")
        plain.commit()
        plain.call("pgq.insert_event", "q", "t", "d")
        plain.commit()
        plain.call("pgq.force_tick", "q")
        plain.commit()
        assert plain.value("select pgq.ticker('q')") == 2
        plain.commit()
        batch = plain.value("select pgq.next_batch('q', 'c')")
        rows = plain.call("pgq.get_batch_events", batch)
        assert [row.ev_data for row in rows] == ["d"]
    server.admin.close()
