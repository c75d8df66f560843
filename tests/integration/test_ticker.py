"""Ticks, maintenance and retry against real databases, ours and upstream's."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator

import pytest

from tests.fixtures.pg import Servers, TestServer
from tests.fixtures.wait import until
from vedur.clock import SYSTEM
from vedur.config import PgqdSettings
from vedur.db import Database, connect
from vedur.errors import ConnectError
from vedur.ticker import duties as ticker
from vedur.ticker.service import TickerService

QUEUE = "odd \"queue'"


def never() -> bool:
    return False


def make_queue(db: Database, name: str = QUEUE) -> None:
    """A queue that ticks at every chance, with a consumer."""
    db.autocommit = True
    db.call("pgq.create_queue", name)
    db.call("pgq.set_queue_config", name, "ticker_max_lag", "0")
    db.call("pgq.register_consumer", name, "c")


def last_tick(db: Database, name: str = QUEUE) -> int:
    return int(db.one("select last_tick_id from pgq.get_queue_info(%s)", [name])[0])


@pytest.fixture(params=["ours", "upstream"])
def queue_db(request, servers: Servers, make_db_on) -> Database:
    """A database with one queue, with our schemas or with upstream's extension."""
    db: Database = make_db_on(servers.get(15), request.param)
    make_queue(db)
    return db


def test_probe_ours(db: Database) -> None:
    got = ticker.probe(db)
    assert got.version is not None and got.version.startswith("3.")
    assert got.notifies


def test_probe_upstream(upstream_db: Database) -> None:
    got = ticker.probe(upstream_db)
    assert got.version is not None
    assert not got.notifies


def test_probe_without_queues(bare_db: Database) -> None:
    assert ticker.probe(bare_db).version is None


def test_probe_refuses_version_2(bare_db: Database, caplog) -> None:
    bare_db.execute("create schema pgq")
    bare_db.execute("create function pgq.version() returns text language sql as $$select '2.1.8'$$")
    assert ticker.probe(bare_db).version is None
    assert "bad pgq version: 2.1.8" in caplog.text


def test_a_tick_wakes_listeners_once(queue_db: Database) -> None:
    queues = ticker.probe(queue_db)
    queues.tick(queue_db)
    with connect(queue_db.connstr, autocommit=True) as listener:
        listener.execute("listen pgq_tick")
        # Two, because upstream overlooks the very first event of a queue until the next one.
        queue_db.call("pgq.insert_event", QUEUE, "t", "d")
        queue_db.call("pgq.insert_event", QUEUE, "t", "d")
        assert queues.tick(queue_db).queues == 1
        got = listener.notifications(5)
        assert [n.payload for n in got] == [f"{QUEUE}:{last_tick(queue_db)}"]
        assert listener.notifications(0.1) == []


def test_a_tick_with_events_tells_how_often_its_queue_may_tick(queue_db: Database) -> None:
    queues = ticker.probe(queue_db)
    other, idle, passed_on = "other", "idle", "passed on"
    for name in (other, idle, passed_on):
        make_queue(queue_db, name)
    queue_db.call("pgq.set_queue_config", QUEUE, "ticker_max_lag", "0.04")
    queue_db.call("pgq.set_queue_config", passed_on, "external_ticker", "true")
    tick_all = "update pgq.tick set tick_time = tick_time - interval '1 hour'"

    def lags(*names: str) -> list[float]:
        """Write events, let time pass, tick."""
        for name in names:
            for _ in range(2):  # upstream overlooks the very first event of a queue
                queue_db.call("pgq.insert_event", name, "t", "d")
        queue_db.execute(tick_all)
        ticked = queues.tick(queue_db)
        assert ticked.queues == 3  # all that are ticked here
        return sorted(ticked.lags)

    lags(QUEUE)
    assert lags() == []  # ticks of idle queues
    assert lags(QUEUE) == [0.04]
    assert lags(QUEUE, other) == [0.0, 0.04]
    assert lags() == []
    with queue_db.transaction():
        queue_db.execute(
            "select pgq.ticker(%s, max(t.tick_id) + 1, now(), max(t.tick_event_seq) + 5)"
            " from pgq.tick t join pgq.queue q on q.queue_id = t.tick_queue"
            " where q.queue_name = %s",
            [passed_on, passed_on],
        )
    assert lags() == []  # no run of this ticker helps a queue that is ticked from elsewhere
    assert ticker.probe(queue_db).tick(queue_db).lags == ()  # a new connection knows nothing


def test_a_member_of_pgq_admin_has_the_rights_of_a_ticker(queue_db: Database) -> None:
    queue_db.call("pgq.set_queue_config", QUEUE, "ticker_max_lag", "0.04")
    queue_db.execute("set role pgq_admin")
    queues = ticker.probe(queue_db)
    queues.tick(queue_db)
    for _ in range(2):
        queue_db.call("pgq.insert_event", QUEUE, "t", "d")
    SYSTEM.sleep(0.05)
    assert queues.tick(queue_db) == (1, (0.04,))


def test_maintenance_rotates_in_two_steps(queue_db: Database) -> None:
    queue_db.call("pgq.set_queue_config", QUEUE, "rotation_period", "0")
    # A consumer that has not read on would hold the old table.
    queue_db.call("pgq.unregister_consumer", QUEUE, "c")
    # Our rotation also waits for a tick after the last switch: a new consumer starts there.
    for _ in range(2):
        queue_db.call("pgq.insert_event", QUEUE, "t", "d")
    ticker.probe(queue_db).tick(queue_db)
    state = "select queue_cur_table, queue_switch_step2 is not null from pgq.queue"
    assert ticker.maintain(queue_db, never) >= 2
    assert tuple(queue_db.one(state)) == (1, True)


@pytest.mark.parametrize(
    "setting",
    ["default_transaction_isolation = 'repeatable read'", "default_transaction_read_only = on"],
)
def test_defaults_of_a_database_do_not_stop_ticks_and_rotation(db: Database, setting: str) -> None:
    make_queue(db)
    db.call("pgq.set_queue_config", QUEUE, "rotation_period", "0")
    db.call("pgq.unregister_consumer", QUEUE, "c")
    db.call("pgq.insert_event", QUEUE, "t", "d")
    db.execute(f'alter database "{dbname(db)}" set {setting}')
    with connect(db.connstr, autocommit=True) as later:
        assert ticker.probe(later).tick(later).queues == 1
        assert ticker.maintain(later, never) >= 2
    assert db.value("select queue_cur_table from pgq.queue") == 1


def test_maintenance_calls_again_while_there_is_more(db: Database) -> None:
    make_queue(db)
    db.execute("create table calls (n serial, arg text)")
    db.execute(
        'create function public."More work"(q text) returns int language sql as '
        "$$insert into calls (arg) values (q) returning 3 - n$$"
    )
    db.execute("update pgq.queue set queue_extra_maint = array['public.More work']")
    ticker.maintain(db, never)
    assert [row.arg for row in db.query("select arg from calls")] == [QUEUE] * 3


def test_a_failing_operation_does_not_stop_the_others(db: Database, caplog) -> None:
    make_queue(db)
    db.execute("create table calls (n int)")
    db.execute(
        "create function bad(q text) returns int language plpgsql as "
        "$$begin raise exception 'no luck'; end$$"
    )
    db.execute(
        "create function good(q text) returns int language sql as "
        "$$insert into calls values (1); select 0$$"
    )
    db.execute("update pgq.queue set queue_extra_maint = array['public.bad', 'public.good']")
    with caplog.at_level(logging.ERROR):
        ticker.maintain(db, never)
    assert db.value("select count(*) from calls") == 1
    assert "no luck" in caplog.text


@pytest.mark.parametrize("statement", ["vacuum", "vacuum analyze"])
def test_vacuum_is_a_statement(db: Database, statement: str) -> None:
    db.autocommit = True
    db.execute('create schema "S.x"; create table public."Odd ""t" (n int)')
    db.execute(
        "create or replace function pgq.maint_operations(out func_name text, out func_arg text) "
        f"returns setof record language sql as $$select '{statement}', 'public.Odd \"t'$$"
    )
    assert ticker.maintain(db, never) == 1


def test_retry_moves_everything(queue_db: Database) -> None:
    for number in range(25):
        queue_db.call("pgq.insert_event", QUEUE, "t", str(number))
    ticker.probe(queue_db).tick(queue_db)
    batch = queue_db.value("select pgq.next_batch(%s, 'c')", [QUEUE])
    queue_db.execute(
        "select pgq.event_retry(%s, ev_id, 0) from pgq.get_batch_events(%s)", [batch, batch]
    )
    queue_db.call("pgq.finish_batch", batch)
    assert ticker.retry_events(queue_db, never) == 25
    assert ticker.retry_events(queue_db, never) == 0


def test_list_databases(oldest: TestServer) -> None:
    got = ticker.list_databases(oldest.admin)
    assert "postgres" in got
    assert not {"template0", "template1"} & set(got)


# -- the service ------------------------------------------------------------------------------


def settings_for(server_port: int, *databases: str, **more: object) -> PgqdSettings:
    base = f"host=127.0.0.1 port={server_port} user=postgres"
    values = {"ticker_period": 0.05, "maint_period": 0.2, "retry_period": 0.2, "check_period": 0.3}
    return PgqdSettings(base_connstr=base, database_list=databases, **{**values, **more})


@contextlib.contextmanager
def serving(settings: PgqdSettings) -> Iterator[TickerService]:
    service = TickerService(settings)
    service.start()
    try:
        yield service
    finally:
        assert service.stop()


def ticks_on(db: Database) -> bool:
    """The ticker notices a new event."""
    before = last_tick(db)
    db.call("pgq.insert_event", QUEUE, "t", "d")
    return until(lambda: last_tick(db) > before)


@pytest.mark.parametrize(("busy_period", "finer"), [(0.02, True), (1.0, False)])
def test_ticks_are_finer_while_there_are_events(
    queue_db: Database, servers: Servers, busy_period: float, finer: bool
) -> None:
    queue_db.call("pgq.set_queue_config", QUEUE, "ticker_max_lag", "0.04")
    settings = settings_for(
        servers.get(15).port, dbname(queue_db), ticker_period=1.0, busy_period=busy_period
    )
    count = "select count(*) from pgq.tick"
    with serving(settings) as service:
        assert ticks_on(queue_db)
        ticks, end = queue_db.value(count), SYSTEM.monotonic() + 3.0
        while SYSTEM.monotonic() < end:
            queue_db.call("pgq.insert_event", QUEUE, "t", "d")
            SYSTEM.sleep(0.01)
        made = queue_db.value(count) - ticks
        assert made > 10 if finer else made <= 5, made
        assert made <= 3.0 / 0.04 + 1  # the queue has the last word
        SYSTEM.sleep(2.5)  # busy for a second, then one more period
        service.context.stats.take()
        SYSTEM.sleep(3.0)
        runs = int(service.context.stats.take().split(":")[1].split(",")[0])
        assert 1 <= runs <= 4


def dbname(db: Database) -> str:
    return str(db.value("select current_database()"))


def test_one_locked_database_does_not_delay_another(oldest: TestServer, make_db_on) -> None:
    one, two = make_db_on(oldest), make_db_on(oldest)
    for db in (one, two):
        make_queue(db)
    stuck = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
        "and datname = current_database() and application_name = 'pgqd'"
    )
    settings = settings_for(oldest.port, dbname(one), dbname(two))
    with connect(one.connstr) as blocker, serving(settings) as service:
        assert ticks_on(one) and ticks_on(two)
        blocker.execute("lock table pgq.tick in access exclusive mode")
        assert until(lambda: one.value(stuck) >= 1)
        for _ in range(3):
            assert ticks_on(two)
        blocker.rollback()
        assert ticks_on(one)
        assert service.databases == sorted([dbname(one), dbname(two)])


def test_a_stuck_statement_is_cancelled_at_stop(oldest: TestServer, make_db_on) -> None:
    db = make_db_on(oldest)
    make_queue(db)
    stuck = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
        "and datname = current_database() and application_name = 'pgqd'"
    )
    with connect(db.connstr) as blocker:
        with serving(settings_for(oldest.port, dbname(db))):
            assert ticks_on(db)
            blocker.execute("lock table pgq.tick in access exclusive mode")
            assert until(lambda: db.value(stuck) >= 1)
        assert until(lambda: db.value(stuck) == 0)


def test_ticks_go_on_after_an_outage(oldest: TestServer, make_db_on, make_proxy, caplog) -> None:
    db = make_db_on(oldest)
    make_queue(db)
    proxy = make_proxy(oldest.port)
    with serving(settings_for(proxy.port, dbname(db))):
        assert ticks_on(db)
        proxy.cut()
        assert until(lambda: f"[{dbname(db)}]: " in caplog.text)
        proxy.restore()
        assert ticks_on(db)


def test_start_without_any_database_fails(oldest: TestServer) -> None:
    with pytest.raises(ConnectError, match='database "nowhere" does not exist'):
        TickerService(settings_for(oldest.port, "nowhere")).start()


def test_start_with_some_databases_works(oldest: TestServer, make_db_on, caplog) -> None:
    db = make_db_on(oldest)
    make_queue(db)
    with serving(settings_for(oldest.port, dbname(db), "nowhere")):
        assert ticks_on(db)
        assert until(lambda: 'database "nowhere" does not exist' in caplog.text)


def test_a_server_that_is_coming_up_is_waited_for(servers: Servers, caplog) -> None:
    server = TestServer(servers.private(max(_majors())))
    name = server.create_database(server.template())
    with connect(server.connstr(name)) as db:
        make_queue(db)
    server.admin.close()
    # Recovery without end: the server runs and refuses everybody, until it is promoted.
    server.server.stop()
    with (server.server.data / "postgresql.conf").open("a") as conf:
        conf.write("hot_standby = off\nrestore_command = '/bin/false'\n")
    signal_file = server.server.data / "standby.signal"
    signal_file.touch()
    if server.server.user:
        shutil.chown(signal_file, server.server.user)
    server.server.start()
    for settings in (settings_for(server.port, name), settings_for(server.port)):
        with serving(settings) as service:
            assert "server is not ready: " in caplog.text
            assert service.databases == []
        caplog.clear()
    with serving(settings_for(server.port, name)):
        server.server._run("pg_ctl", "promote", "-w", "-D", str(server.server.data), "-s")
        with connect(server.connstr(name), autocommit=True) as db:
            assert ticks_on(db)


def test_queues_that_appear_later_are_served(oldest: TestServer, make_db_on) -> None:
    from vedur.db.install import install

    db = make_db_on(oldest, "bare")
    with serving(settings_for(oldest.port, dbname(db))) as service:
        idle = (
            "select count(*) from pg_stat_activity where application_name = 'pgqd' and datname=%s"
        )
        assert until(lambda: oldest.admin.value(idle, [dbname(db)]) == 0)
        install(db)
        db.commit()
        make_queue(db)
        assert ticks_on(db)
        assert service.databases == [dbname(db)]


def test_databases_are_found_and_lost(servers: Servers, caplog) -> None:
    caplog.set_level(logging.INFO, "vedur")
    server = TestServer(servers.private(max(_majors())))
    name = server.create_database(server.template())
    settings = settings_for(server.port, initial_database="template1")
    with serving(settings) as service:
        db = connect(server.connstr(name))
        make_queue(db)
        assert ticks_on(db)
        later = server.create_database("template0", "Later db's")
        assert until(lambda: later in service.databases)
        db.close()
        server.drop_database(name)
        assert until(lambda: name not in service.databases)
        assert f"Unregister database: [{name}]" in caplog.text
        assert f"[{name}]: pgq version ok: 3." in caplog.text


def _majors() -> list[int]:
    from tests.fixtures.pg import VERSIONS

    return list(VERSIONS)


def test_maintenance_and_retry_run_by_themselves(queue_db: Database, servers: Servers) -> None:
    queue_db.call("pgq.set_queue_config", QUEUE, "rotation_period", "0")
    queue_db.call("pgq.insert_event", QUEUE, "t", "d")
    with serving(settings_for(servers.get(15).port, dbname(queue_db))) as service:
        next_batch = "select pgq.next_batch(%s, 'c')"
        assert until(
            lambda: (
                (b := queue_db.value(next_batch, [QUEUE]))
                and (
                    queue_db.value("select count(*) from pgq.get_batch_events(%s)", [b])
                    or not queue_db.call("pgq.finish_batch", b)
                )
            )
        )
        batch = queue_db.value(next_batch, [QUEUE])
        queue_db.execute(
            "select pgq.event_retry(%s, ev_id, 0) from pgq.get_batch_events(%s)", [batch, batch]
        )
        queue_db.call("pgq.finish_batch", batch)
        assert until(lambda: queue_db.value("select count(*) from pgq.retry_queue") == 0)
        queue_db.call("pgq.unregister_consumer", QUEUE, "c")
        assert until(lambda: queue_db.value("select max(queue_cur_table) from pgq.queue") > 0)
        # counted when the duty is done, which is after the event has gone
        lines: list[str] = []
        count = lambda: lines.append(service.context.stats.take())  # noqa: E731
        assert until(lambda: count() or lines[-1].endswith("retry: 1}")), lines
        assert all(line.startswith("{ticks: ") for line in lines)
