"""The installer: fresh, again, upgrade, foreign schemas, two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fixtures.pg import Servers, TestServer
from vedur import db as vdb
from vedur.db import install as installer
from vedur.db.install import State, inspect, install
from vedur.sql import SCHEMAS


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
    with pytest.raises(vdb.database.DatabaseError, match="division by zero"):
        install(bare_db)
    bare_db.rollback()
    assert set(_states(bare_db).values()) == {State.MISSING}
    assert bare_db.query("select 1 from pg_namespace where nspname in ('pgq', 'vedur')") == []


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
    fingerprint = (
        "select md5(string_agg(p.oid::text || p.xmin::text || p.prosrc, ',' order by p.oid)) "
        "from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
        "where n.nspname in ('pgq', 'pgq_node', 'londiste')"
    )
    before = db.value(fingerprint)
    states = {c.schema: c.state for c in install(db)}
    db.commit()
    assert states["pgq"] is State.FOREIGN
    assert states["pgq_node"] is State.FOREIGN
    assert states["londiste"] is State.FOREIGN
    assert db.value(fingerprint) == before
    assert db.value("select vedur.version()")
    assert _states(db)["vedur"] is State.CURRENT


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
