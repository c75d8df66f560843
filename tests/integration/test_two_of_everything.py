"""Two of everything: workers, tickers, commands at once. They wait, refuse, never corrupt.

The tasks run in this process: Spark only carries them. Repairs alone have a session of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_compare import ready
from tests.labs.compare import Lab as CompareLab
from tests.labs.compare import make_lab  # noqa: F401
from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE
from tests.labs.writers import Writers, check, make
from vedur import db as vdb
from vedur import failpoint
from vedur.config import LondisteSettings, PgqdSettings
from vedur.errors import VedurError
from vedur.node.position import lock_worker_position
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.drop_node import drop_node
from vedur.ops.execute.run import execute
from vedur.ops.remove_table import remove_table
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.resync import resync
from vedur.ops.session import Session
from vedur.ticker.service import TickerService
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]


@pytest.fixture
def lab(quick_lab: Lab) -> Lab:
    quick_lab.slice_bytes = 64 << 10
    return quick_lab


def test_two_workers_replay_one_node(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """With another pidfile nothing keeps a second worker from starting: they take turns."""
    make(lab, "t", "u", rows=100)
    lab.add("public.t", "public.u")
    lab.start()
    lab.wait_ok()
    with Writers(lab, "t", "u") as writers:
        lab.start()
        writers.go_on(300)
        assert lab.alive
        lab.stop_one()
        writers.go_on(30)
    check(lab, "t", "u")
    assert "Traceback" not in caplog.text


@pytest.mark.draw(1)
@pytest.mark.parametrize("step", [Step.REGISTER, Step.LOAD, Step.REBUILD, Step.CATCH_UP])
def test_a_second_worker_comes_during_a_copy(
    lab: Lab, step: Step, caplog: pytest.LogCaptureFixture
) -> None:
    make(lab, "t")
    lab.add("public.t")
    lab.leaf.execute("alter table t drop constraint t_pkey")  # what comes twice is seen
    there = threading.Event()

    def second(_table: str, now: Step) -> None:
        if now is step and not there.is_set():
            there.set()
            lab.start()
            writers.go_on(60)

    with Writers(lab, "t") as writers:
        lab.start(second)
        lab.wait_ok()
        assert there.is_set()
        writers.go_on()
    check(lab, "t")
    assert "Traceback" not in caplog.text


def session(db: vdb.Database, name: str) -> Session:
    """A command of the operator, with connections of its own."""
    settings = LondisteSettings(db=db.connstr, queue_name=QUEUE, job_name=name)
    return Session(settings)


STEPS = [Step.REGISTER, Step.STRIP, Step.LOAD, Step.REBUILD, Step.CATCH_UP, Step.HAND_OVER]


def remove_and_add(lab: Lab, _tmp: Path) -> None:
    with session(lab.leaf, "leaf") as leaf:
        remove_table(leaf, ["t"])
        assert lab.structure("t") == lab.before
        add_table(leaf, AddTable(tables=["t"]))


def copy_again(lab: Lab, _tmp: Path) -> None:
    with session(lab.leaf, "leaf") as leaf:
        resync(leaf, ["t"])


def add_another(lab: Lab, _tmp: Path) -> None:
    for db, name in ((lab.root, "root"), (lab.leaf, "leaf")):
        with session(db, name) as node:
            add_table(node, AddTable(tables=["u"]))


def run_script(lab: Lab, tmp: Path) -> None:
    script = tmp / "s.sql"
    script.write_text("alter table public.t add c int default 7;\n")
    with session(lab.root, "root") as root:
        execute(root, [str(script)])


@pytest.mark.draw(3)
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.name.lower())
@pytest.mark.parametrize("act", [remove_and_add, copy_again, add_another, run_script])
def test_a_command_during_a_copy(
    lab: Lab,
    act: Callable[[Lab, Path], None],
    step: Step,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(lab, "t", "u", rows=1000)
    lab.leaf.execute("create index t_v on t (v)")
    lab.before = lab.structure("t")  # type: ignore[attr-defined]
    lab.add("public.t")
    done = threading.Event()
    refused: list[str] = []

    def command() -> None:
        try:
            act(lab, tmp_path)
        except VedurError as error:
            refused.append(error.message)
        finally:
            done.set()

    thread = threading.Thread(target=command)

    def hook(_table: str, now: Step) -> None:
        if now is step and thread.ident is None:
            thread.start()
            done.wait(1.0)  # it may have to wait for this copy

    with Writers(lab, "t", "u") as writers:
        lab.start(hook)
        lab.wait_until(done.is_set)
        thread.join()
        assert [text for text in refused if "\n" in text] == []
        if refused:  # the operator reads the line and tries again
            act(lab, tmp_path)
        writers.go_on()
        lab.wait_ok()
    check(lab, "t")
    if act is add_another:
        lab.same("u")
    if act is not run_script:
        assert lab.structure("t") == lab.before
    assert "Traceback" not in caplog.text


def test_remove_table_after_some_indexes_are_back(lab: Lab) -> None:
    """A worker that was killed between two indexes of a rebuild leaves one there."""
    make(lab, "t", rows=100)
    lab.leaf.execute('create index "t ""odd" on t (v); create index t_n on t (n)')
    before = lab.structure("t")
    lab.add("public.t")
    done = threading.Event()

    def hook(_table: str, now: Step) -> None:
        if now is Step.REBUILD and not done.is_set():
            with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
                db.execute('create index "t ""odd" on t (v)')
                db.execute("create unique index t_pkey on t (id)")
            with session(lab.leaf, "leaf") as leaf:
                remove_table(leaf, ["t"])
            done.set()

    lab.start(hook)
    lab.wait_until(done.is_set)
    assert lab.structure("t") == before
    lab.wait_until(lambda: lab.debris() == [])


def test_drop_node_during_replay(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """The worker says what has happened, in one line, and waits for a node."""
    make(lab, "t", rows=100)
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    with Writers(lab, "t") as writers:
        with session(lab.root, "root") as root:
            drop_node(root, "leaf")
        writers.go_on(100)
        lab.wait_until(lambda: "has no node here: run create-leaf, create-branch or" in caplog.text)
    assert lab.alive
    lab.stop()
    assert lab.root.value("select count(*) from pgq.get_consumer_info()") == 1  # its own worker
    assert [m for m in caplog.messages if "\n" in m] == []
    assert "Traceback" not in caplog.text


def test_drop_node_waits_for_a_batch_before_it_locks_a_row(lab: Lab) -> None:
    """It did not, and the two could wait for each other: the batch has locked its tables, and at
    its end writes the position, whose row the command had deleted."""
    make(lab, "t", rows=1)
    lab.add("public.t")
    errors: list[BaseException] = []

    def drop() -> None:
        try:
            with session(lab.root, "root") as root:
                drop_node(root, "leaf")
        except BaseException as error:
            errors.append(error)

    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
        with db.transaction():
            lock_worker_position(db, QUEUE)
            db.execute("lock table t in row exclusive mode")
            thread = threading.Thread(target=drop)
            thread.start()
            lab.wait_until(lambda: lab.leaf.value(waiting) == 1)
            db.execute("set local lock_timeout = '1s'")
            db.execute("update pgq_node.local_state set cur_error = null")
        thread.join()
    assert errors == []
    assert lab.leaf.value("select count(*) from pgq_node.node_info") == 0


@pytest.mark.parametrize("step", [Step.LOAD, Step.REBUILD, Step.CATCH_UP], ids=lambda s: s.name)
def test_drop_node_during_a_copy(lab: Lab, step: Step, caplog: pytest.LogCaptureFixture) -> None:
    """The table keeps its indexes, the provider's queue is not held for a copy that is gone."""
    make(lab, "t", rows=1000)
    lab.leaf.execute("create index t_v on t (v)")
    before = lab.structure("t")
    lab.add("public.t")
    done = threading.Event()

    def hook(_table: str, now: Step) -> None:
        if now is step and not done.is_set():
            with session(lab.root, "root") as root:
                drop_node(root, "leaf")
            done.set()

    lab.start(hook)
    lab.wait_until(done.is_set)
    lab.wait_until(lambda: lab.copying is not None and not lab.copies())
    lab.wait_until(lambda: lab.structure("t") == before)
    consumers = "select co_name from pgq.consumer join pgq.subscription on sub_consumer = co_id"
    lab.wait_until(lambda: not any(".copy." in r.co_name for r in lab.root.query(consumers)))
    lab.stop()
    assert "Traceback" not in caplog.text


def together(*acts: Callable[[], None]) -> list[str]:
    """Run commands side by side; what those that were refused said."""
    said: list[str] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except VedurError as error:
            said.append(error.message)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def adding(db: vdb.Database, name: str, *tables: str) -> Callable[[], None]:
    def act() -> None:
        with session(db, name) as node:
            add_table(node, AddTable(tables=tables))

    return act


def test_add_table_twice_at_once(lab: Lab) -> None:
    """The same tables in different orders, and different ones: each is there once."""
    names = [f"t{i}" for i in range(6)]
    make(lab, *names, rows=50)
    for db, name in ((lab.root, "root"), (lab.leaf, "leaf")):
        acts = [adding(db, name, *names), adding(db, name, *reversed(names))]
        acts += [adding(db, name, one) for one in names[:3]]
        for text in together(*acts):
            assert "\n" not in text
        missing = set(names) - {
            r.table_name.removeprefix("public.")
            for r in db.query("select * from londiste.get_table_list(%s) where local", [QUEUE])
        }
        adding(db, name, *missing)() if missing else None
    triggers = Counter(
        r.relname
        for r in lab.root.query(
            "select c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid "
            "where not t.tgisinternal and t.tgname like '\\_londiste\\_%' "
            "and t.tgtype & 32 = 0"
        )
    )
    assert triggers == dict.fromkeys(names, 1)
    with Writers(lab, *names) as writers:
        lab.start()
        writers.go_on()
    check(lab, *names)


@pytest.mark.parametrize("point", ["execute.started", "execute.run", "execute.finished"])
def test_execute_of_one_file_twice_at_once(
    lab: Lab, point: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From two inis: while one is in the middle the other comes, and the script runs once."""
    make(lab, "t", rows=100)
    for db in (lab.root, lab.leaf):
        db.execute("create table once (at timestamptz default clock_timestamp())")
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    script = tmp_path / "s.sql"
    script.write_text(
        "alter table public.t add if not exists c int default 7;\n"
        "insert into once default values;\n"
    )
    waiting = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
        "and datname = current_database() and query like '%%londiste.execute_start%%'"
    )
    ended = threading.Event()
    first: list[int] = []
    stood: list[bool] = []

    def act(name: str) -> Callable[[], None]:
        def run() -> None:
            try:
                with session(lab.root, name) as root:
                    execute(root, [str(script)])
            finally:
                ended.set()

        return run

    def hook(reached: str) -> None:
        me = threading.get_ident()
        if reached == point and not first:
            first.append(me)
            with vdb.connect(lab.root.connstr, autocommit=True) as db:
                until(lambda: ended.is_set() or db.value(waiting, []))
            stood.append(not ended.is_set())

    failpoint.set_hook(hook)
    with Writers(lab, "t") as writers:
        said = together(act("root"), act("other"))
        failpoint.set_hook(None)
        writers.go_on()
    assert stood == [True], "the second did not wait for the first"
    assert [text for text in said if "\n" in text] == []
    check(lab, "t")
    for db in (lab.root, lab.leaf):
        assert db.value("select count(*) from once") == 1
        assert db.value("select count(*) from londiste.applied_execute") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.draw("repair")
@pytest.mark.spark
@pytest.mark.parametrize("point", ["repair.planned", "repair.fetched", "repair.applied"])
def test_repair_of_one_table_twice_at_once(
    make_lab: Callable[..., CompareLab],  # noqa: F811
    point: str,
) -> None:
    """From two inis: the second is refused, in one line, and every row is written once."""
    lab = ready(make_lab)
    lab.plant("delete from users where id between 10 and 14")
    lab.plant("update users set note = 'wrong' where id between 20 and 23")
    lab.plant("insert into users select -g from generate_series(1, 3) g")
    ended = threading.Event()
    first: list[str] = []
    done: list[int] = []

    def act(name: str) -> Callable[[], None]:
        def run() -> None:
            try:
                with lab.session(job_name=name) as leaf:
                    done.append(repair(leaf, RepairOptions(apply=True), lab.spark)[0].total)
            finally:
                ended.set()

        return run

    def hook(reached: str) -> None:
        if reached == point and not first:
            first.append(reached)
            until(ended.is_set)

    failpoint.set_hook(hook)
    try:
        said = together(act("leaf"), act("other"))
    finally:
        failpoint.set_hook(None)
    assert said == ['another repair of "public.users" is running: wait for it to end']
    assert done == [12]
    assert lab.leaf.value("select count(*) from vedur.repair_log") == 12
    assert lab.pair.rows("users")[0] == lab.pair.rows("users")[1]
    debris = "select count(*) from pg_class where relname ~ '^repair_(keys|rows)_'"
    assert lab.leaf.value(debris) == 0
    assert lab.leaf.value("select count(*) from vedur.hold") == 0


def test_two_tickers_at_once(oldest: Any, make_db_on: Callable[..., vdb.Database]) -> None:
    """Two services on one database: every event is in one batch, once, and tables rotate."""
    db: vdb.Database = make_db_on(oldest, autocommit=True)
    db.call("pgq.create_queue", "q")
    db.execute("update pgq.queue set queue_ticker_max_lag = '0', queue_rotation_period = '0.2 s'")
    db.call("pgq.register_consumer", "q", "c")
    settings = PgqdSettings(
        base_connstr=f"host=127.0.0.1 port={oldest.port} user=postgres",
        database_list=(str(db.value("select current_database()")),),
        ticker_period=0.01,
        maint_period=0.1,
    )
    services = [TickerService(settings) for _ in range(2)]
    seen: Counter[str] = Counter()
    switched: set[int] = set()
    written = 0

    def consume() -> bool:
        batch = db.value("select pgq.next_batch('q', 'c')")
        if batch is None:
            return False
        seen.update(r.ev_data for r in db.call("pgq.get_batch_events", batch))
        switched.add(db.value("select queue_switch_step1 from pgq.queue"))
        db.call("pgq.finish_batch", batch)
        return True

    for service in services:
        service.start()
    try:
        while written < 500 or len(switched) < 4:
            assert written < 100_000, "tables are not rotated"
            db.call("pgq.insert_event", "q", "t", str(written))
            written += 1
            consume()
        db.call("pgq.force_tick", "q")
        last = db.value("select max(tick_id) from pgq.tick")
        until(lambda: db.value("select max(tick_id) from pgq.tick") > last)
        while consume():
            pass
    finally:
        for service in services:
            assert service.stop()
    assert seen == {str(i): 1 for i in range(written)}
    gaps = "select tick_id - lag(tick_id) over (order by tick_id) as gap from pgq.tick"
    assert {r.gap for r in db.query(gaps)} <= {None, 1}


def until(true: Callable[[], object]) -> None:
    """Poll a condition with a deadline."""
    waiting = threading.Event()
    for _ in range(3000):
        if true():
            return
        waiting.wait(0.02)
    raise AssertionError("waited a minute in vain")
