"""vedur.publish: a branch has the root's events and ticks; what would make it differ is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.fixtures.pg import MakeDb, Servers, TestServer
from tests.fixtures.wait import until
from tests.labs.cascade import Cascade, Range, call
from vedur import db as vdb
from vedur.db.install import install
from vedur.errors import DatabaseError, PrivilegeError

MakeDbOn = Callable[..., vdb.Database]
Connect = Callable[[vdb.Database], vdb.Database]

REPEAT = "40001"
STATE = "55000"
CORRUPT = "XX001"


@pytest.fixture
def cascade(make_db: MakeDb) -> Cascade:
    """A root and a branch with our schemas."""
    return Cascade(make_db(autocommit=True), make_db(autocommit=True)).create()


@pytest.fixture(params=["ours", "upstream"])
def either(
    request: pytest.FixtureRequest, make_db_on: MakeDbOn, servers: Servers, oldest: TestServer
) -> Cascade:
    """The same, and once more with a branch whose pgq and pgq_node are upstream's extensions."""
    if request.param == "ours":
        root, branch = (make_db_on(oldest, autocommit=True) for _ in range(2))
        return Cascade(root, branch).create()
    branch = make_db_on(servers.get(15), "beside", autocommit=True)
    return Cascade(make_db_on(oldest, autocommit=True), branch).create()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Open further connections; they give up waiting for a lock soon."""
    with ExitStack() as stack:

        def make(db: vdb.Database) -> vdb.Database:
            other = stack.enter_context(vdb.connect(db.connstr, autocommit=True))
            other.execute("set lock_timeout = '300ms'")
            return other

        yield make


def begin_with_number(db: vdb.Database) -> int:
    """Begin a transaction that has a number of its own."""
    db.autocommit = False
    return int(db.value("select txid_current()"))


def fill(cascade: Cascade, ticks: int = 2) -> list[int]:
    """So many ticks on the root, two events each."""
    made = []
    for _ in range(ticks):
        cascade.insert(n=2)
        made.append(cascade.tick())
    return made


def txids(cascade: Cascade) -> list[int]:
    pfx = cascade.branch.value(
        "select queue_data_pfx from pgq.queue where queue_name = %s", [cascade.queue]
    )
    rows = cascade.branch.query(f"select ev_txid from {pfx} order by ev_id")
    return [row.ev_txid for row in rows]


# -- what arrives ----------------------------------------------------------------------------------


def test_ticks_of_a_merged_range_stay_apart(either: Cascade) -> None:
    either.insert(n=3)
    either.tick()
    either.tick()
    either.insert(kind="EXECUTE")
    either.insert(kind="R")
    either.tick()
    ticks = either.forward(parts=2)
    assert len(ticks.ids) == 4
    assert either.ticks(either.branch)[-4:] == ticks.ids
    assert either.require_equal(ticks.ids[:-1]) == 5
    root, branch = either.tick_rows(either.root), either.tick_rows(either.branch)
    assert all(branch[tick] == root[tick] for tick in ticks.ids[1:])


def test_an_empty_range_writes_its_ticks(either: Cascade) -> None:
    made = [either.tick() for _ in range(3)]
    assert either.forward().events == 0
    assert either.ticks(either.branch)[-3:] == made
    fill(either)
    assert either.require_equal(either.forward().ids[:-1]) == 4


def test_nothing_is_seen_before_the_commit(cascade: Cascade, connect: Connect) -> None:
    fill(cascade)
    ticks = cascade.stage_range(cascade.read_range())
    other = connect(cascade.branch)
    other.execute("listen pgq_tick")
    with cascade.branch.transaction():
        cascade.publish(ticks)
        assert cascade.top(other) == ticks.ids[0]
        assert other.value("select count(*) from pgq.event_1") == 0
    assert cascade.top(other) == ticks.ids[-1]
    payloads = [n.payload for n in other.notifications(5.0)]
    assert payloads == [f"{cascade.queue}:{ticks.ids[-1]}"]


def test_events_come_in_their_order_with_all_they_have(cascade: Cascade) -> None:
    """Whatever the order in which tasks have staged them."""
    for _ in range(2):
        cascade.insert(n=6)
        cascade.tick()
    ticks = cascade.forward(parts=3)
    assert cascade.require_equal(ticks.ids[:-1]) == 12
    columns = "ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra4"
    text = f"select {columns} from pgq.event_1 order by 1"
    assert cascade.branch.query(text) == cascade.root.query(text)


@pytest.mark.parametrize("bits", [8, 40, 62])
def test_slice_numbers_and_times_of_any_size_are_staged(cascade: Cascade, bits: int) -> None:
    """Binary values have the width of their type, which a number in a statement does not tell."""
    fill(cascade)
    times = ["infinity", "4713-01-01 00:00:00.000001+00 BC", "294276-12-31 23:59:59.999999+00"]
    for ev_id, time in enumerate(times, 1):
        cascade.root.execute("update pgq.event_1 set ev_time = %s where ev_id = %s", [time, ev_id])
    ticks = cascade.stage_range(cascade.read_range(), bits=bits)
    assert cascade.commit(ticks) == 4
    text = "select ev_id, ev_time::text as t, ev_data from pgq.event_1 order by 1"
    assert cascade.branch.query(text) == cascade.root.query(text)


def test_sequences_go_on_where_the_root_was(cascade: Cascade) -> None:
    cascade.insert()
    cascade.tick()
    last = cascade.forward()
    call(cascade.branch, "pgq_node.promote_branch", cascade.queue)
    assert cascade.branch.value("select pgq.insert_event(%s, 't', 'd')", [cascade.queue]) == 2
    assert cascade.branch.value("select pgq.ticker(%s)", [cascade.queue]) == last.ids[-1] + 1


def test_a_branch_may_tell_another_global_watermark(cascade: Cascade) -> None:
    cascade.insert(kind="pgq.global-watermark")
    cascade.insert()
    cascade.tick()
    cascade.commit(cascade.stage_range(cascade.read_range()), watermark=77)
    rows = cascade.branch.query("select ev_type, ev_data from pgq.event_1 order by ev_id")
    assert [tuple(row) for row in rows] == [("pgq.global-watermark", "77"), ("I", "d1")]


def test_a_transaction_that_ends_late_is_where_the_root_has_it(
    either: Cascade, connect: Connect
) -> None:
    late = connect(either.root)
    late.autocommit = False
    either.insert(late)
    fill(either, 2)
    with late.transaction():
        either.insert(late, n=2)
    assert either.require_equal(either.forward(1).ids[:-1]) == 2
    fill(either, 1)
    late.commit()
    fill(either, 2)
    assert either.require_equal(either.forward().ids[:-1]) == 11


def test_many_events_of_a_thousand_ticks(cascade: Cascade) -> None:
    """Ticks and numbers by hand: those of the provider may be far from ours."""
    cascade.insert(n=20_000)
    cascade.tick()
    cascade.root.execute("update pgq.event_1 set ev_txid = 1000000000 + ev_id / 20")
    cascade.root.execute(
        "insert into pgq.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)"
        " select 1, 100 + i, now(), (x || ':' || x || ':')::txid_snapshot, 100 * i"
        " from generate_series(1, 1001) i, lateral (select 1000000000 + i as x) x"
    )
    ticks = cascade.read_range()
    assert cascade.commit(cascade.stage_range(ticks)) == 20_000
    assert cascade.require_equal(ticks.ids[1:-1:100]) == 200
    assert len(set(txids(cascade))) == 1001


# -- numbers ---------------------------------------------------------------------------------------


def test_events_of_one_tick_have_the_number_of_their_transaction(either: Cascade) -> None:
    """Any snapshot of the server tells of them what it tells of the tables."""
    either.tick()
    fill(either, 1)
    either.tick()
    ticks = either.stage_range(either.read_range())
    with either.branch.transaction():
        own = either.branch.value("select txid_current()")
        either.publish(ticks)
        call(either.branch, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1])
    assert set(txids(either)) == {own}
    assert either.require_equal(ticks.ids[:-1]) == 2


def test_numbers_of_a_rolled_back_batch_are_not_used_again(cascade: Cascade) -> None:
    fill(cascade)
    ticks = cascade.stage_range(cascade.read_range())
    with pytest.raises(ZeroDivisionError), cascade.branch.transaction():
        cascade.publish(ticks)
        before = txids(cascade)
        raise ZeroDivisionError
    cascade.commit(ticks)
    assert min(txids(cascade)) > max(before)
    assert cascade.require_equal(ticks.ids[:-1]) == 4


def test_a_rotation_after_the_transaction_began_hides_nothing(
    either: Cascade, connect: Connect
) -> None:
    """Its own number is older than the switch: upstream's readers would look in the other table."""
    fill(either, 1)
    either.forward()
    call(either.branch, "pgq_node.set_global_watermark", either.queue, either.top(either.branch))
    fill(either, 1)
    ticks = either.stage_range(either.read_range())
    worker = connect(either.branch)
    begin_with_number(worker)
    assert either.rotate(either.branch)
    either.publish(ticks, worker)
    # the number is not that of the transaction, so no copy by snapshot may begin before the commit
    with pytest.raises(DatabaseError, match="lock timeout"):
        connect(either.branch).value(
            "select pgq.register_consumer(%s, 'leaf.copy.public.t')", [either.queue]
        )
    call(worker, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1])
    worker.commit()
    step1 = either.branch.value(
        "select queue_switch_step1 from pgq.queue where queue_name = %s", [either.queue]
    )
    assert txids(either)[-1] > step1
    assert either.require_equal(ticks.ids[:-1]) == 2


def test_a_rotation_after_the_transaction_began_leaves_ticks_ahead_of_a_consumer(
    either: Cascade, connect: Connect
) -> None:
    """Rotation goes by the oldest transaction of each tick, which must not go back."""
    fill(either, 1)
    either.forward()
    call(either.branch, "pgq_node.set_global_watermark", either.queue, either.top(either.branch))
    fill(either, 2)
    ticks = either.stage_range(either.read_range())
    worker = connect(either.branch)
    begin_with_number(worker)
    assert either.rotate(either.branch)
    either.publish(ticks, worker)
    call(worker, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1])
    worker.commit()
    either.branch.execute(f"truncate {either.stage}")
    oldest = "select array_agg(txid_snapshot_xmin(tick_snapshot) order by tick_id) from pgq.tick"
    found = either.branch.value(oldest)
    assert found == sorted(found)
    fill(either, 1)
    last = either.forward().ids[-1]
    move(either, either.branch, "c", ticks.ids[1])
    call(either.branch, "pgq_node.set_global_watermark", either.queue, ticks.ids[1])
    assert either.rotate(either.branch)
    assert either.ticks(either.branch) == [*ticks.ids[1:], last]
    assert either.require_equal(ticks.ids[1:]) == 4


def test_rotation_waits_for_a_batch_and_finds_its_numbers(
    either: Cascade, connect: Connect
) -> None:
    fill(either, 1)
    either.forward()
    call(either.branch, "pgq_node.set_global_watermark", either.queue, either.top(either.branch))
    fill(either, 3)
    ticks = either.stage_range(either.read_range())
    other = connect(either.branch)
    with either.branch.transaction():
        either.publish(ticks)
        with pytest.raises(DatabaseError, match="lock timeout"):
            either.rotate(other)
        call(either.branch, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1])
    assert either.rotate(other)
    assert not either.rotate(other)  # somebody may still need the table before
    assert either.require_equal(ticks.ids[:-1]) == 6


def test_an_epoch_later_numbers_have_64_bits(servers: Servers, oldest: TestServer) -> None:
    server = servers.private(oldest.version)
    server.stop()
    program = server.binaries.path("pg_resetwal")
    subprocess.run([program, "-e", "3", str(server.data)], user=server.user, check=True)
    server.start()
    with (
        vdb.connect(server.connstr("postgres"), autocommit=True) as admin,
        ExitStack() as stack,
    ):
        both = []
        for name in ("r", "b"):
            admin.execute(f"create database {name}")
            db = stack.enter_context(vdb.connect(server.connstr(name), autocommit=True))
            install(db)
            both.append(db)
        cascade = Cascade(*both).create()
        fill(cascade, 3)
        ticks = cascade.forward()
        assert cascade.require_equal(ticks.ids[:-1]) == 6
        assert min(txids(cascade)) > 3 << 32


def test_snapshots_list_who_is_running_and_end_behind_their_number(db: vdb.Database) -> None:
    text = "select vedur.snapshots_of_branch(%s, %s, %s::bigint[])::text[]"
    assert db.value(text, ["5:5:", "20:90:20,30,70", [None, 25, None, 60, 80, None]]) == [
        *["5:5:", "20:26:20", "20:26:20", "20:61:20,30"],
        *["20:90:20,30,70", "20:90:20,30,70"],
    ]
    assert db.value(text, ["5:5:", "20:90:20,30", [None, None]]) == ["20:90:20,30"] * 2
    # the server's xmin is the transaction that asks, which sees itself
    assert db.value(text, ["5:5:", "7:90:70", [25, 80]]) == ["26:26:", "70:90:70"]
    assert db.value(text, ["5:5:", "7:90:", [25, 80]]) == ["26:26:", "90:90:"]
    # 32 bits of it are never 0, and the server takes no such snapshot
    wrap, later = (1 << 32) - 1, f"{(1 << 32) + 9}:{(1 << 32) + 9}:"
    assert db.value(text, ["5:5:", later, [wrap - 1, wrap, wrap + 5]]) == [
        *[f"{wrap}:{wrap}:", f"{wrap + 4}:{wrap + 4}:", later],
    ]


# -- refusals --------------------------------------------------------------------------------------

Spoil = Callable[[Cascade, Range], object]


def on_branch(text: str) -> Spoil:
    return lambda cascade, ticks: cascade.branch.execute(text)


def change(name: str, value: object) -> Spoil:
    return lambda cascade, ticks: setattr(ticks, name, value)


def drop_last_tick(cascade: Cascade, ticks: Range) -> None:
    for column in (ticks.ids, ticks.times, ticks.event_seqs, ticks.snapshots):
        column.pop()


def drop_first_tick(cascade: Cascade, ticks: Range) -> None:
    for column in (ticks.ids, ticks.times, ticks.event_seqs, ticks.snapshots):
        column.pop(0)


def see_less(cascade: Cascade, ticks: Range) -> None:
    ticks.snapshots[2] = ticks.snapshots[0]


def see_less_again(cascade: Cascade, ticks: Range) -> None:
    """A transaction that had ended is running again."""
    xmax = int(ticks.snapshots[2].split(":")[1])
    xmax0 = int(ticks.snapshots[0].split(":")[1])
    assert xmax > xmax0
    ticks.snapshots[2] = f"{xmax0 - 1}:{xmax}:{xmax0 - 1}"


def hide(table: str) -> Spoil:
    """Somebody else's relation in the place of the staging table."""

    def act(cascade: Cascade, ticks: Range) -> None:
        cascade.branch.execute(
            f"drop table {cascade.stage}; create {table.format(stage=cascade.stage)};"
            " do $$ begin create role stage_thief; exception when duplicate_object then end $$;"
            f" alter table {cascade.stage} owner to stage_thief"
        )

    return act


def insert_here(cascade: Cascade, ticks: Range) -> None:
    with cascade.branch.transaction():
        cascade.branch.execute("set local session_replication_role = replica")
        cascade.insert(cascade.branch)


def append_tick(cascade: Cascade, ticks: Range) -> None:
    ticks.ids[-1] = ticks.ids[-2]


FUTURE = "txid_snapshot '9999999999:9999999999:'"
REFUSALS: dict[str, tuple[Spoil, str, str]] = {
    "no queue": (on_branch("update pgq.queue set queue_name = 'z'"), "42704", "does not exist"),
    "root": (on_branch("update pgq_node.node_info set node_type = 'root'"), STATE, "not a branch"),
    "no node": (
        on_branch("delete from pgq_node.local_state; delete from pgq_node.node_info"),
        STATE,
        "not a branch",
    ),
    "open for inserts": (
        on_branch("update pgq.queue set queue_disable_insert = false"),
        STATE,
        "open for inserts",
    ),
    "ticker of its own": (
        on_branch("update pgq.queue set queue_external_ticker = false"),
        STATE,
        "ticked on this node",
    ),
    "paused": (on_branch("update pgq.queue set queue_ticker_paused = true"), STATE, "is paused"),
    "isolation": (
        on_branch("set default_transaction_isolation = 'repeatable read'"),
        "0A000",
        "read committed",
    ),
    "published": (lambda c, t: c.commit(t), STATE, r"tick \d+ .* is not behind its newest tick"),
    "gap": (drop_first_tick, STATE, "would leave a gap"),
    "position": (
        on_branch("update pgq_node.local_state set last_tick_id = 0"),
        STATE,
        "stand at tick 0",
    ),
    "position of another": (
        on_branch("update pgq_node.local_state set consumer_name = 'somebody'"),
        STATE,
        "stand at tick <NULL>",
    ),
    "no tick": (
        on_branch("delete from pgq.subscription; delete from pgq.tick"),
        STATE,
        "has no tick",
    ),
    "another tick of that id": (
        lambda c, t: t.times.__setitem__(0, "2001-01-01 00:00:00+00"),
        CORRUPT,
        "one id, two ticks",
    ),
    "event of this node": (insert_here, CORRUPT, r"event \d+ .* was inserted on this node"),
    "one tick": (change("ids", [1]), "22023", "no ticks of a range"),
    "no ticks": (change("ids", []), "22023", "no ticks of a range"),
    "ticks back": (append_tick, "22023", "no ticks of a range"),
    "null": (lambda c, t: t.event_seqs.__setitem__(1, None), "22023", "no ticks"),  # type: ignore
    "fewer times": (lambda c, t: t.times.pop(), "22023", "no ticks of a range"),
    "fewer snapshots": (lambda c, t: t.snapshots.pop(), "22023", "4 ticks and 3 snapshots"),
    "events lost": (
        lambda c, t: c.branch.execute(f"truncate {c.stage}"),
        "VB001",
        "0 events .* are staged and 6 were read",
    ),
    "a slice twice": (lambda c, t: c.stage_range(t), CORRUPT, "6 events .* staged more than once"),
    "event behind": (drop_last_tick, CORRUPT, r"event 7 .* is of none of the ticks"),
    "see less": (see_less, CORRUPT, r"tick \d+ of the provider does not see"),
    "see less again": (see_less_again, CORRUPT, r"tick \d+ of the provider does not see"),
    "no stage": (
        lambda c, t: c.branch.execute(f"drop table {c.stage}"),
        "42P01",
        "no staging table",
    ),
    "a view": (hide("view {stage} as select 1 as slice"), "42501", "made by role"),
    "a table": (hide("table {stage} (slice bigint)"), "42501", "made by role"),
    "future": (
        on_branch(f"update pgq.tick set tick_snapshot = {FUTURE}"),
        CORRUPT,
        "restored from a dump",
    ),
    "future switch": (
        on_branch("update pgq.queue set queue_switch_step1 = 9999999999"),
        CORRUPT,
        "restored from a dump",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_would_make_the_branch_differ_is_refused(cascade: Cascade, name: str) -> None:
    fill(cascade, 1)
    cascade.forward()  # the tick that create_node makes is of another time everywhere
    fill(cascade, 3)
    ticks = cascade.stage_range(cascade.read_range())
    spoil, state, message = REFUSALS[name]
    look = (
        "select concat_ws(' ', (select count(*) from pgq.tick),"
        " (select count(*) from pgq.event_template), (select last_value from pgq.event_1_id_seq),"
        " (select last_value from pgq.event_1_tick_seq))"
    )
    spoil(cascade, ticks)
    before = cascade.branch.value(look)
    with pytest.raises(DatabaseError, match=message) as refused:
        cascade.commit(ticks)
    assert refused.value.sqlstate == state
    cascade.branch.execute("set default_transaction_isolation = 'read committed'")
    assert cascade.branch.value(look) == before


def test_names_outside_of_the_schema_are_refused(either: Cascade) -> None:
    """With upstream's pgq an administrator may write them; with ours a constraint is before it."""
    fill(either, 1)
    ticks = either.stage_range(either.read_range())
    either.branch.execute("alter table pgq.queue drop constraint if exists queue_schema_check")
    either.branch.execute("update pgq.queue set queue_data_pfx = 'public.evil'")
    with pytest.raises(PrivilegeError, match='outside of schema "pgq"'):
        either.commit(ticks)


def test_a_tick_of_create_node_has_any_time(cascade: Cascade) -> None:
    """Here, or on a provider that is a branch itself."""
    fill(cascade, 1)
    ticks = cascade.stage_range(cascade.read_range())
    ticks.times[0] = "2001-01-01 00:00:00+00"
    cascade.commit(ticks)
    fill(cascade, 1)
    ticks = cascade.stage_range(cascade.read_range())
    ticks.times[0], ticks.event_seqs[0] = "2001-01-01 00:00:00+00", 1
    cascade.commit(ticks)


def test_only_the_worker_or_one_like_it_publishes_at_a_time(
    cascade: Cascade, connect: Connect
) -> None:
    fill(cascade)
    ticks = cascade.stage_range(cascade.read_range())
    other = connect(cascade.branch)
    with cascade.branch.transaction():
        cascade.publish(ticks)
        with pytest.raises(DatabaseError, match="lock timeout"):
            cascade.commit(ticks, other)
        call(cascade.branch, "pgq_node.set_consumer_completed", cascade.queue, "w2", ticks.ids[-1])
    with pytest.raises(DatabaseError, match="is not behind its newest tick"):
        cascade.commit(ticks, other)


# -- first copies ----------------------------------------------------------------------------------


def test_copies_by_snapshot_are_served_tick_by_tick(either: Cascade) -> None:
    either.branch.value("select pgq.register_consumer(%s, 'leaf.copy.public.t')", [either.queue])
    fill(either, 3)
    text = "select * from vedur.copies_by_snapshot(%s)"
    assert [row[0] for row in either.branch.query(text, [either.queue])] == ["leaf.copy.public.t"]
    with pytest.raises(DatabaseError, match=r'tick by tick.*"leaf.copy.public.t"') as refused:
        either.forward()
    assert refused.value.sqlstate == REPEAT
    either.branch.execute(f"truncate {either.stage}")
    first = either.ticks(either.branch)[-1]
    for _ in range(3):
        assert len(either.forward(1).ids) == 2
    assert either.require_equal([t for t in either.ticks(either.branch) if t >= first][:-1]) == 6


def test_a_copy_by_snapshot_is_not_served_with_a_number_from_before_a_rotation(
    either: Cascade, connect: Connect
) -> None:
    fill(either, 1)
    either.forward()
    call(either.branch, "pgq_node.set_global_watermark", either.queue, either.top(either.branch))
    fill(either, 1)
    ticks = either.stage_range(either.read_range())
    worker = connect(either.branch)
    begin_with_number(worker)
    assert either.rotate(either.branch)
    either.branch.value("select pgq.register_consumer(%s, 'leaf.copy.public.t')", [either.queue])
    with pytest.raises(DatabaseError, match="repeat the batch") as refused:
        either.publish(ticks, worker)
    assert refused.value.sqlstate == REPEAT
    worker.rollback()
    either.commit(ticks)
    assert either.require_equal(ticks.ids[:-1]) == 2


def test_a_copy_cannot_begin_between_the_look_and_the_commit(
    either: Cascade, connect: Connect
) -> None:
    fill(either, 2)
    ticks = either.stage_range(either.read_range())
    other = connect(either.branch)
    register = "select pgq.register_consumer(%s, 'leaf.copy.public.t')"
    with either.branch.transaction():
        either.publish(ticks)
        with pytest.raises(DatabaseError, match="lock timeout"):
            other.value(register, [either.queue])
        call(either.branch, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1])
    assert other.value(register, [either.queue]) == 1


def test_a_snapshot_tells_of_events_what_it_tells_of_tables(
    either: Cascade, connect: Connect
) -> None:
    """What upstream's first copy relies on, at every moment of a batch."""
    either.branch.value("select pgq.register_consumer(%s, 'leaf.copy.public.t')", [either.queue])
    either.branch.execute("create table t (n int)")
    reader = connect(either.branch)
    seen: list[tuple[int, str]] = []

    def look() -> None:
        row = reader.one("select (select count(*) from t) as n, txid_current_snapshot()::text as s")
        seen.append((row.n, row.s))

    for _ in range(3):
        fill(either, 1)
        ticks = either.stage_range(either.read_range())
        with either.branch.transaction():
            look()
            either.branch.execute("insert into t values (1)")
            reader.value("select txid_current()")
            look()
            either.publish(ticks)
            reader.value("select txid_current()")
            look()
            call(
                either.branch, "pgq_node.set_consumer_completed", either.queue, "w2", ticks.ids[-1]
            )
        look()
    numbers = sorted(set(txids(either)))
    assert len(numbers) == 3
    for rows, snapshot in seen:
        visible = either.branch.value(
            "select count(*) from unnest(%s::bigint[]) n"
            " where txid_visible_in_snapshot(n, %s::txid_snapshot)",
            [numbers, snapshot],
        )
        assert visible == rows, snapshot


def test_a_copy_that_goes_by_ticks_lets_ticks_be_merged(either: Cascade) -> None:
    name = "leaf.copy.public.t"
    register, mark = "select pgq.register_consumer(%s, %s)", "select vedur.mark_tick_copy(%s, %s)"
    assert either.branch.value(mark, [either.queue, name]) is False
    either.branch.value(register, [either.queue, name])
    for _ in range(2):
        assert either.branch.value(mark, [either.queue, name]) is True
    fill(either, 2)
    assert len(either.forward().ids) == 3
    # Another of the same name is another one.
    either.branch.value("select pgq.unregister_consumer(%s, %s)", [either.queue, name])
    either.branch.value(register, [either.queue, name])
    text = "select * from vedur.copies_by_snapshot(%s)"
    assert [row[0] for row in either.branch.query(text, [either.queue])] == [name]


def test_the_shown_tick_belongs_to_the_snapshot(either: Cascade, connect: Connect) -> None:
    text = "select * from vedur.shown_tick(%s)"
    fill(either, 2)
    before = either.forward()
    reader = connect(either.branch)
    reader.autocommit = False
    reader.execute("set transaction isolation level repeatable read, read only")
    shown = reader.one(text, [either.queue])
    fill(either, 2)
    after = either.forward()
    assert reader.one(text, [either.queue]) == shown
    reader.rollback()
    assert shown.tick_id == before.ids[-1] and shown.tick_event_seq == before.event_seqs[-1]
    visible = either.branch.value(
        "select array_agg(txid_visible_in_snapshot(n, %s::txid_snapshot) order by nr)"
        " from unnest(%s::bigint[]) with ordinality as t (n, nr)",
        [shown.tick_snapshot, txids(either)],
    )
    assert visible == [True] * 4 + [False] * 4
    reader.execute("set transaction isolation level repeatable read, read only")
    assert reader.one(text, [either.queue]).tick_id == after.ids[-1]
    reader.rollback()


@pytest.mark.parametrize(
    ("prepare", "level", "message"),
    [
        ("select 1", "read committed", "repeatable read only"),
        ("update pgq_node.node_info set node_type = 'root'", "serializable", "not a branch"),
        ("update pgq_node.local_state set last_tick_id = 99", "repeatable read", "try again"),
    ],
)
def test_a_tick_that_is_not_shown(
    cascade: Cascade, connect: Connect, prepare: str, level: str, message: str
) -> None:
    cascade.branch.execute(prepare)
    reader = connect(cascade.branch)
    reader.autocommit = False
    reader.execute(f"set transaction isolation level {level}")
    with pytest.raises(DatabaseError, match=message):
        reader.one("select * from vedur.shown_tick(%s)", [cascade.queue])


# -- change of roles -------------------------------------------------------------------------------


def consume(db: vdb.Database, queue: str, consumer: str, count: int | None = None) -> list[str]:
    """Read all that is there, in batches of one tick, or of about `count` events."""
    found: list[str] = []
    text = "select batch_id from pgq.next_batch_custom(%s, %s, null, %s, null)"
    while (batch := db.value(text, [queue, consumer, count])) is not None:
        rows = db.query("select ev_data from pgq.get_batch_events(%s)", [batch])
        found += [row.ev_data for row in rows]
        db.value("select pgq.finish_batch(%s)", [batch])
    return found


def test_a_transaction_older_than_the_last_ticks_writes_to_the_new_root(
    either: Cascade, connect: Connect
) -> None:
    """It has its number already, smaller than those of the last ticks; its events must come."""
    old = connect(either.branch)
    begin_with_number(old)
    fill(either, 3)
    ticks = either.forward()
    for at, tick in enumerate(ticks.ids):
        either.branch.value(
            "select pgq.register_consumer_at(%s, %s, %s)", [either.queue, f"c{at}", tick]
        )
    call(either.branch, "pgq_node.promote_branch", either.queue)
    for db, data in ((old, "old"), (either.branch, "new")):
        db.value("select pgq.insert_event(%s, 't', %s)", [either.queue, data])
    assert either.branch.value("select pgq.ticker(%s)", [either.queue]) is not None
    old.commit()
    either.branch.value("select pgq.insert_event(%s, 't', 'last')", [either.queue])
    assert either.branch.value("select pgq.ticker(%s)", [either.queue]) is not None
    for at in range(4):
        count = None if at % 2 else 4
        found = consume(either.branch, either.queue, f"c{at}", count)
        assert len(found) == 2 * (3 - at) + 3, at
        assert sorted(found[-3:]) == ["last", "new", "old"]


def test_a_promotion_waits_for_a_batch_and_not_in_a_circle(
    cascade: Cascade, connect: Connect
) -> None:
    fill(cascade, 2)
    ticks = cascade.stage_range(cascade.read_range())
    other = connect(cascade.branch)
    other.execute("set lock_timeout = 0")
    with ThreadPoolExecutor(1) as pool:
        with cascade.branch.transaction():
            cascade.branch.value("select vedur.lock_position(%s, 'w2')", [cascade.queue])
            promotion = pool.submit(call, other, "pgq_node.promote_branch", cascade.queue)
            waits = "select count(*) from pg_locks where pid = %s and not granted"
            assert until(lambda: cascade.root.value(waits, [other.backend_pid]))
            cascade.publish(ticks)
            call(
                cascade.branch, "pgq_node.set_consumer_completed", cascade.queue, "w2", ticks.ids[2]
            )
        assert promotion.result().ret_code == 200
    assert cascade.require_equal(ticks.ids[:-1]) == 4


def test_a_root_that_became_a_branch_goes_on_behind_its_last_tick(
    cascade: Cascade, connect: Connect
) -> None:
    """Its last snapshot lists transactions that were running then."""
    running = connect(cascade.root)
    number = begin_with_number(running)
    fill(cascade, 2)
    for step in (1, 2):
        last = call(cascade.root, "pgq_node.demote_root", cascade.queue, step, None).last_tick
    snapshot = cascade.root.value("select tick_snapshot from pgq.tick where tick_id = %s", [last])
    assert str(number) in str(snapshot).split(":")[2].split(",")
    first = cascade.forward()
    call(cascade.branch, "pgq_node.promote_branch", cascade.queue)
    call(cascade.branch, "pgq_node.register_subscriber", cascade.queue, "n1", "w1", last)
    call(cascade.root, "pgq_node.demote_root", cascade.queue, 3, "n2")
    stage = cascade.root.value("select vedur.create_raw_stage(%s, 0)", [cascade.queue])
    back = replace(cascade, root=cascade.branch, branch=cascade.root, worker="w1", stage=stage)
    fill(back, 2)
    back.forward(1)
    running.commit()
    fill(back, 2)
    ticks = back.forward()
    assert ticks.ids[-1] == back.top(back.root)
    whole = [t for t in back.ticks(back.root) if t >= first.ids[0]]
    assert back.require_equal(whole[:-1]) == 12


def test_an_old_writer_of_a_root_that_became_a_branch_is_told(
    cascade: Cascade, connect: Connect
) -> None:
    """A snapshot from before the queue was closed: what it inserts then is on no other node."""
    writer = connect(cascade.root)
    writer.autocommit = False
    writer.execute("set transaction isolation level repeatable read")
    writer.value("select count(*) from pgq.queue")
    for step in (1, 2, 3):
        call(cascade.root, "pgq_node.demote_root", cascade.queue, step, "n2")
    cascade.insert(writer)
    writer.commit()
    cascade.forward()
    call(cascade.branch, "pgq_node.promote_branch", cascade.queue)
    stage = cascade.root.value("select vedur.create_raw_stage(%s, 0)", [cascade.queue])
    back = replace(cascade, root=cascade.branch, branch=cascade.root, worker="w1", stage=stage)
    fill(back, 1)
    with pytest.raises(DatabaseError, match=r"event \d+ .* was inserted on this node"):
        back.forward()


def test_events_that_a_consumer_wants_again_come_once(either: Cascade, connect: Connect) -> None:
    """They get the number of the maintenance that moves them, in the middle of a batch."""
    maintenance = connect(either.branch)
    for name in ("c", "other"):
        either.branch.value("select pgq.register_consumer(%s, %s)", [either.queue, name])
    fill(either, 1)
    either.forward()
    batch = either.branch.value("select pgq.next_batch(%s, 'c')", [either.queue])
    event = either.branch.value("select min(ev_id) from pgq.get_batch_events(%s)", [batch])
    either.branch.value("select pgq.event_retry(%s, %s, 0)", [batch, event])
    either.branch.value("select pgq.finish_batch(%s)", [batch])
    fill(either, 2)
    ticks = either.stage_range(either.read_range())
    maintenance.autocommit = False
    maintenance.execute("set local session_replication_role = replica")
    assert maintenance.value("select pgq.maint_retry_events()") == 1
    either.commit(ticks)
    assert len(consume(either.branch, either.queue, "c")) == 4
    maintenance.commit()
    fill(either, 2)
    either.branch.execute(f"truncate {either.stage}")
    either.forward()
    assert len(consume(either.branch, either.queue, "c")) == 5
    assert len(consume(either.branch, either.queue, "other")) == 10


# -- watermarks ------------------------------------------------------------------------------------


def move(cascade: Cascade, db: vdb.Database, consumer: str, tick: int) -> None:
    """Let a consumer finish everything up to a tick."""
    db.value("select pgq.register_consumer_at(%s, %s, %s)", [cascade.queue, consumer, tick])


def report(cascade: Cascade) -> None:
    """Tell watermarks up and down the tree, as the workers of branch and root do."""
    state = call(cascade.branch, "pgq_node.get_worker_state", cascade.queue)
    report_to_root(cascade, state.local_watermark)


def report_to_root(cascade: Cascade, watermark: int) -> None:
    row = cascade.root.one(
        "select * from pgq_node.set_subscriber_watermark(%s, 'n2', %s)", [cascade.queue, watermark]
    )
    assert row.ret_code in (100, 200)
    call(cascade.root, "pgq_node.set_global_watermark", cascade.queue, None)
    cascade.tick()
    forward_and_obey(cascade)


def forward_and_obey(cascade: Cascade) -> None:
    """Pass on what is there, and act on watermarks among the events."""
    first = cascade.top(cascade.branch)
    ticks = cascade.forward()
    move(cascade, cascade.root, "w2", ticks.ids[-1])
    for tick in [t for t in cascade.ticks(cascade.branch) if t >= first][:-1]:
        for event in cascade.batch(cascade.branch, tick, "eye")[1]:
            if event[3] == "pgq.global-watermark":
                call(cascade.branch, "pgq_node.set_global_watermark", cascade.queue, int(event[4]))
    cascade.branch.value("select pgq.unregister_consumer(%s, 'eye')", [cascade.queue])


def watermarks(cascade: Cascade) -> tuple[int, int]:
    """The global watermark on root and branch."""
    return tuple(
        call(db, "pgq_node.get_node_info", cascade.queue).global_watermark
        for db in (cascade.root, cascade.branch)
    )  # type: ignore[return-value]


def test_queues_rotate_when_and_only_when_every_node_has_passed(either: Cascade) -> None:
    call(either.branch, "pgq_node.register_subscriber", either.queue, "n3", "w3", None)
    start = either.top(either.root)
    fill(either, 3)
    forward_and_obey(either)
    report(either)
    # the branch has passed, the leaf below it has not
    assert watermarks(either) == (start, start)
    assert not either.rotate(either.root)
    assert not either.rotate(either.branch)
    assert either.require_equal([start]) == 2
    for db in (either.root, either.branch):
        db.value("select pgq.unregister_consumer(%s, 'c')", [either.queue])

    fill(either, 2)
    forward_and_obey(either)
    passed = either.top(either.branch)
    move(either, either.branch, "w3", passed)
    assert not either.rotate(either.branch)  # the leaf has read, but not reported
    row = either.branch.one(
        "select * from pgq_node.set_subscriber_watermark(%s, 'n3', %s)", [either.queue, passed]
    )
    assert row.ret_code == 200
    assert watermarks(either) == (start, start)
    assert not either.rotate(either.root)
    report(either)
    assert watermarks(either) == (passed, passed)
    for db in (either.root, either.branch):
        assert either.rotate(db)
    fill(either, 2)
    ticks = either.forward()
    assert either.require_equal(ticks.ids[:-1]) == 4


def test_a_branch_without_consumers_holds_nobody_back(either: Cascade) -> None:
    fill(either, 3)
    forward_and_obey(either)
    passed = either.top(either.branch)
    report(either)
    assert watermarks(either) == (passed, passed)
    for db in (either.root, either.branch):
        assert either.rotate(db)


def test_a_branch_that_lags_holds_the_root(either: Cascade) -> None:
    fill(either, 2)
    forward_and_obey(either)
    report(either)
    held = watermarks(either)[0]
    fill(either, 3)
    # the root's worker publishes; the branch is at its old position
    call(either.root, "pgq_node.set_global_watermark", either.queue, None)
    assert call(either.root, "pgq_node.get_node_info", either.queue).global_watermark == held
    assert either.rotate(either.root)  # what lies before the branch's position
    assert not either.rotate(either.root)
    assert either.require_equal(either.forward().ids[:-1]) >= 6


# -- rights ----------------------------------------------------------------------------------------

CLOSED = [
    "select vedur.publish('q', 0, '{}', 0, '{1,2}', '{now,now}', '{1,1}', '{1:1:,1:1:}')",
    "select vedur.create_raw_stage('q', 0)",
    "select vedur.drop_raw_stages('q')",
    "select vedur.copies_by_snapshot('q')",
]
INNER = [
    "select vedur.burn_numbers('pgq.queue', 1)",
    "select vedur.raw_stage('1', 0)",
    "select vedur.lock_branch('q')",
    "select vedur.check_new_ticks(1, '{1,2}', '{now,now}', '{1,1}')",
]


@pytest.mark.parametrize("role", ["pgq_reader", "pgq_writer", "londiste_reader"])
@pytest.mark.parametrize("text", CLOSED)
def test_who_runs_no_node_publishes_nothing(db: vdb.Database, role: str, text: str) -> None:
    db.execute(f"set local role {role}")
    with pytest.raises(PrivilegeError):
        db.execute(text)


@pytest.mark.parametrize("role", ["pgq_admin", "londiste_writer"])
@pytest.mark.parametrize("text", INNER)
def test_parts_are_for_the_whole_only(db: vdb.Database, role: str, text: str) -> None:
    db.execute(f"set local role {role}")
    with pytest.raises(PrivilegeError):
        db.execute(text)


def test_a_writer_can_neither_ask_nor_mark(db: vdb.Database) -> None:
    for text in ("select vedur.mark_tick_copy('q', 'c')", "select vedur.shown_tick('q')"):
        with pytest.raises(PrivilegeError), db.transaction():
            db.execute("set local role pgq_writer")
            db.execute(text)


def test_a_worker_with_the_documented_rights_publishes(cascade: Cascade) -> None:
    fill(cascade, 2)
    ticks = cascade.read_range()
    cascade.branch.execute("drop table " + cascade.stage)
    with cascade.branch.transaction():
        cascade.branch.execute("create role stage_worker in role londiste_writer, pgq_admin")
    try:
        cascade.branch.execute("set role stage_worker")
        cascade.branch.value("select vedur.create_raw_stage(%s, 0)", [cascade.queue])
        assert cascade.commit(cascade.stage_range(ticks)) == 4
        cascade.branch.execute(f"truncate {cascade.stage}")
        for text in ("alter table {} add x int", "create trigger t before insert on {} "):
            with pytest.raises(DatabaseError):
                cascade.branch.execute(text.format(cascade.stage))
        assert cascade.branch.value("select vedur.drop_raw_stages(%s)", [cascade.queue]) == 1
    finally:
        cascade.branch.execute("reset role; drop role stage_worker")
    assert cascade.require_equal(ticks.ids[:-1]) == 4


def test_a_reader_marks_its_copy_and_asks_what_is_shown(cascade: Cascade) -> None:
    cascade.branch.execute("create role stage_reader in role londiste_reader")
    try:
        with cascade.branch.transaction():
            cascade.branch.execute("set transaction isolation level repeatable read")
            cascade.branch.execute("set local role stage_reader")
            cascade.branch.value("select pgq.register_consumer(%s, 'a.copy.b')", [cascade.queue])
            mark = "select vedur.mark_tick_copy(%s, 'a.copy.b')"
            assert cascade.branch.value(mark, [cascade.queue]) is True
            shown = cascade.branch.one("select * from vedur.shown_tick(%s)", [cascade.queue])
        assert shown.tick_id == cascade.top(cascade.branch)
    finally:
        cascade.branch.execute("drop role stage_reader")


def test_stages_of_queues_that_are_gone_are_dropped(cascade: Cascade) -> None:
    other = replace(cascade, queue="other").create()
    assert cascade.branch.value("select vedur.create_raw_stage('other', 1)") is not None
    cascade.branch.execute("create table vedur_work.raw_99_x (a int)")
    for text in ("select vedur.create_raw_stage('none', 0)",):
        with pytest.raises(DatabaseError, match="does not exist"):
            cascade.branch.execute(text)
    with pytest.raises(DatabaseError, match="there is no slot 100"):
        cascade.branch.execute("select vedur.create_raw_stage('other', 100)")
    for consumer in ("w2", ".global_watermark"):
        cascade.branch.value("select pgq.unregister_consumer(%s, %s)", [other.queue, consumer])
    cascade.branch.value("select pgq.drop_queue(%s, true)", [other.queue])
    assert cascade.branch.value("select vedur.drop_raw_stages(null)") == 2
    assert cascade.branch.value("select to_regclass(%s)", [cascade.stage]) is not None


def test_a_long_queue_is_not_read_for_each_batch(cascade: Cascade) -> None:
    """Event tables have no statistics: the server must take the index all the same."""
    events = cascade.branch.value(
        "select queue_data_pfx || '_0' from pgq.queue where queue_name = %s", [cascade.queue]
    )
    cascade.branch.execute(
        f"insert into {events} (ev_id, ev_time, ev_txid, ev_type, ev_data)"
        " select -i, now(), 3, 'I', repeat('x', 400) from generate_series(1, 20000) i"
    )
    cascade.insert()
    cascade.tick()
    ticks = cascade.stage_range(cascade.read_range())
    scans = "select seq_scan from pg_stat_xact_user_tables where relid = %s::regclass"
    with cascade.branch.transaction():
        # as with so many events that to share the work pays: an index is for few rows only
        cascade.branch.execute("set local cpu_index_tuple_cost = 0.05")
        before = cascade.branch.value(scans, [events])
        cascade.publish(ticks)
        assert cascade.branch.value(scans, [events]) == before
