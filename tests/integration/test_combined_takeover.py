"""A combined branch waits behind its root, and takes its place: nothing of a part is lost or comes
twice, in whichever direction the root moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.fixtures.wait import until
from tests.labs.combined import COMBINED, Combined, Living, living, write
from tests.labs.pair import call
from vedur.clock import SYSTEM
from vedur.db import connect
from vedur.db.conninfo import parse
from vedur.errors import OtherEpoch, StateError
from vedur.node.info import NodeType, get_node_info
from vedur.node.part import read_parts
from vedur.ops.resurrect.run import ResurrectOptions, resurrect
from vedur.ops.takeover.checks import why_untold
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import takeover

MakeCombined = Callable[..., Combined]

pytestmark = pytest.mark.usefixtures("without_spark")
PATIENCE = 90.0
#: Steps of a takeover that only a set with parts has; tests/torture/test_short.py looks here.
KILLED = frozenset({"takeover.parts_level"})


def with_branch(make_combined: MakeCombined) -> Combined:
    """Two parts, the combined root `c1`, and its branch `c2`, which has the parts, too."""
    lab = make_combined()
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.merge("c2")
    lab.table()
    return lab


def told(make_combined: MakeCombined) -> Combined:
    """The same, and the combined queue has told `c2` of every part."""
    lab = with_branch(make_combined)
    lab.flow("c2")
    return lab


def positions(lab: Combined, place: str) -> dict[str, int]:
    return {name: part.tick for name, part in read_parts(lab.dbs[place], COMBINED).items()}


def move(lab: Combined, old: str, new: str, **options: object) -> None:
    """Run takeover as the operator does, on the new node."""
    with lab[COMBINED, new].session() as session:
        takeover(session, old, TakeoverOptions(**{"compare": False, **options}))  # type: ignore[arg-type]


def test_a_part_that_waits_forgets_an_error_when_it_works_again(
    make_combined: MakeCombined,
) -> None:
    """It completes no batch; status would show the last outage for ever."""
    lab = told(make_combined)
    call(lab.dbs["c2"], "pgq_node.set_consumer_error", "p1", "c2_p1", "connection failed")
    lab.work("p1", "c2")
    text = "select cur_error from pgq_node.local_state where consumer_name = 'c2_p1'"
    assert lab.dbs["c2"].query(text) == [(None,)]


def test_a_part_of_a_combined_branch_follows_and_reads_no_rows(
    make_combined: MakeCombined,
) -> None:
    lab = with_branch(make_combined)
    assert not any(part.told for part in read_parts(lab.dbs["c2"], COMBINED).values())
    write(lab, "p1", range(100, 105))
    lab.flow()
    lab.work("p1", "c2")  # the combined queue has brought nothing yet: neither does the part
    assert lab.rows("c2") == []
    lab.flow("c2")
    lab.require_union("c1", "c2")
    assert positions(lab, "c2") == positions(lab, "c1")
    assert all(part.told for part in read_parts(lab.dbs["c2"], COMBINED).values())
    # its consumer stands where the tables are, and what the part says of its set is carried out
    stands = "select last_tick from pgq.get_consumer_info('p1', 'c2_p1')"
    assert lab.dbs["p1"].value(stands) == positions(lab, "c2")["p1"]
    lab.dbs["p1"].execute("create table later (id int primary key)")
    call(lab.dbs["p1"], "londiste.local_add_table", "p1", "later")
    lab.flow("c2")
    known = "select count(*) from londiste.get_table_list('p1') where table_name = 'public.later'"
    assert lab.dbs["c2"].value(known) == 1
    # a part that lags on the combined root holds the position here, too
    before = positions(lab, "c2")["p2"]
    write(lab, "p2", range(200, 205))
    lab.tick("p2")
    lab.tick(COMBINED)
    for queue in (COMBINED, "p2"):
        lab.work(queue, "c2")
    assert positions(lab, "c2")["p2"] == before


def test_the_watermark_of_a_new_part_goes_back_to_what_it_needs(
    make_combined: MakeCombined,
) -> None:
    """It began at the newest tick of its set, and the combined queue tells of an earlier one: what
    comes behind that must be kept on all nodes of the part, and not on its provider alone."""
    lab = make_combined(parts=1)
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.table("p1", "c1")
    write(lab, "p1", range(100, 105))
    lab.flow()
    merged = positions(lab, "c1")["p1"]
    write(lab, "p1", range(110, 115))
    lab.merge("c2")

    def watermark() -> int | None:
        text = "select node_watermark from pgq_node.get_subscriber_info('p1') where node_name = %s"
        return lab.dbs["p1"].value(text, ["c2"])  # type: ignore[no-any-return]

    lab.work("p1", "c2")
    began = positions(lab, "c2")["p1"]
    assert merged < began == watermark()
    lab.work(COMBINED, "c2")
    lab["p1", "c2"].worker._close_connections()
    lab["p1", "c2"].renew()  # it reports at once
    lab.work("p1", "c2")
    assert positions(lab, "c2")["p1"] == watermark() == merged


@pytest.mark.parametrize("point", ["combined.handled", "combined.moved"])
def test_a_waiting_part_that_is_killed_carries_out_every_event_once(
    make_combined: MakeCombined, point: str
) -> None:
    """A table that is removed and added again in the meantime would lose its place here."""
    lab = with_branch(make_combined)
    lab.flow("c2")
    call(lab.dbs["p1"], "londiste.local_remove_table", "p1", "t")
    call(lab.dbs["p1"], "londiste.local_add_table", "p1", "t")
    lab.flow()
    lab.work(COMBINED, "c2")
    with killed_at(point) as reached, pytest.raises(Killed):
        lab.work("p1", "c2")
    assert reached
    lab["p1", "c2"].worker._close_connections(doubtful=True)
    lab["p1", "c2"].renew()
    if point == "combined.moved":  # what has been carried out was committed
        call(lab.dbs["c2"], "londiste.local_add_table", "p1", "t", ["expect_sync", "no_merge"])
    lab.work("p1", "c2")
    here = "select local from londiste.get_table_list('p1') where table_name = 'public.t'"
    assert lab.dbs["c2"].value(here) is (point == "combined.moved")


def test_a_part_that_is_killed_while_it_takes_over_goes_on_where_it_was(
    make_combined: MakeCombined,
) -> None:
    """Step by step, without a command: the old root is closed, the branch becomes root, and its
    part is killed just before it has joined."""
    lab = with_branch(make_combined)
    write(lab, "p1", range(100, 105))
    lab.flow("c2")
    demote = "select * from pgq_node.demote_root(%s, %s, 'c2')"
    for step in (1, 2):
        lab.dbs["c1"].one(demote, [COMBINED, step])
    write(lab, "p1", range(110, 115))
    lab.tick("p1")
    lab.work("p1", "c1")  # it is closed: nothing is merged, and nothing fails
    lab.work(COMBINED, "c2")
    assert positions(lab, "c1") == positions(lab, "c2")
    call(lab.dbs["c2"], "pgq_node.promote_branch", COMBINED)
    with killed_at("combined.joined") as reached, pytest.raises(Killed):
        lab.work("p1", "c2")
    assert reached
    lab["p1", "c2"].worker._close_connections(doubtful=True)
    lab["p1", "c2"].renew()
    for part in lab.parts:
        lab.work(part, "c2")
    lab.require_union("c2")
    assert not lab.dbs["c2"].query("select * from vedur.part_wait")
    assert len(lab.events("c2")) == 22


def test_the_root_moves_and_the_parts_go_on_where_they_were(make_combined: MakeCombined) -> None:
    lab = told(make_combined)
    write(lab, "p1", range(100, 105))
    write(lab, "p2", range(200, 205))
    with living(lab) as life:
        settled(lab, life, "c2")
        root, other = "c1", "c2"
        for step in range(2):
            move(lab, root, other)
            root, other = other, root
            write(lab, "p1", range(110 + 10 * step, 115 + 10 * step))
            write(lab, "p2", range(210 + 10 * step, 215 + 10 * step))
            settled(lab, life, "c1", "c2")
        assert not life.errors, life.errors


class Load:
    """Applications that write to the parts all the time; rows count their changes."""

    def __init__(self, lab: Combined) -> None:
        self.lab, self._over = lab, threading.Event()
        self.threads = [
            threading.Thread(target=self._write, args=(part, at), daemon=True)
            for at, part in enumerate(lab.parts)
        ]
        for thread in self.threads:
            thread.start()

    def _write(self, part: str, at: int) -> None:
        key = 1_000_000 * (at + 1)
        with connect(self.lab.dbs[part].connstr, autocommit=True) as db:
            while not SYSTEM.wait(self._over, 0.01):
                key += 1
                db.execute("insert into t values (%s, %s)", [key, part])
                db.execute("update t set n = n + 1 where id in (%s, %s)", [key, key - 3])
                if key % 4 == 0:
                    db.execute("delete from t where id = %s", [key - 5])

    def end(self) -> None:
        self._over.set()
        for thread in self.threads:
            thread.join(PATIENCE)


@contextmanager
def load(lab: Combined) -> Iterator[Load]:
    made = Load(lab)
    try:
        yield made
    finally:
        made.end()


def settled(lab: Combined, life: Living, *places: str) -> None:
    """Wait until the nodes have all that the parts have. Numbers of rows alone do not tell: `write`
    deletes one of what it has inserted."""
    union = lab.rows(*lab.parts)
    for place in places:
        assert until(lambda place=place: lab.rows(place) == union, PATIENCE), (place, life.errors)


@pytest.mark.long
def test_the_root_moves_back_and_forth_under_load(make_combined: MakeCombined) -> None:
    """Three times there and back, while the worker of a part is away before each, as in Londiste's
    scenario takeover-merge."""
    lab = told(make_combined)
    lab.add(COMBINED, "d1", NodeType.LEAF, "c2")
    lab.table("d1")
    with living(lab) as life:
        with load(lab):
            assert until(lambda: len(lab.rows("d1")) > 10, PATIENCE), life.errors
            for _ in range(3):
                life.stop("p2", "c2")
                count = len(lab.rows("c2"))
                assert until(lambda count=count: len(lab.rows("c2")) > count + 5, PATIENCE)
                life.start("p2", "c2")
                move(lab, "c1", "c2")
                move(lab, "c2", "c1")
        settled(lab, life, "c1", "c2", "d1")
    assert not life.errors, life.errors


def test_a_takeover_is_refused_where_parts_do_not_fit(make_combined: MakeCombined) -> None:
    lab = make_combined()
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.merge("c2", "p1")
    lab.table()
    lab.flow("c2")
    with (
        living(lab),
        pytest.raises(StateError, match='part "p2" is merged into "c1" and not into "c2"'),
    ):
        move(lab, "c1", "c2")
    lab.merge("c2", "p2")
    lab.flow("c2")
    with living(lab):
        with pytest.raises(StateError, match='part "p2" brings other tables to "c2"'):
            move(lab, "c1", "c2")
        assert not lab.dbs["c1"].value("select queue_disable_insert from pgq.queue")


def test_a_part_that_was_made_a_moment_ago_cannot_be_taken_over(
    make_combined: MakeCombined,
) -> None:
    """Its position says where it was created, and not what the combined queue has brought."""
    lab = with_branch(make_combined)
    away = [(part, "c1") for part in lab.parts]
    with living(lab, away), pytest.raises(StateError, match="is not known yet"):
        move(lab, "c1", "c2")
    assert get_node_info(lab.dbs["c1"], COMBINED).is_root  # type: ignore[union-attr]
    assert "drop-node the part here" in why_untold("c2", "p1", None)  # nobody is left to tell


@pytest.mark.parametrize("point", ["takeover.closed", "takeover.parts_level", "takeover.promoted"])
def test_a_takeover_that_is_killed_is_finished_or_undone(
    make_combined: MakeCombined, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = told(make_combined)
    with living(lab) as life:
        write(lab, "p1", range(100, 105))
        settled(lab, life, "c2")
        monkeypatch.setattr("vedur.ops.takeover.run._Live._undo", lambda self, error: None)
        with killed_at(point) as reached, pytest.raises(Killed):
            move(lab, "c1", "c2")
        assert reached
        write(lab, "p1", range(110, 115))
        write(lab, "p2", range(200, 205))
        move(lab, "c1", "c2")
        settled(lab, life, "c1", "c2")
    assert not life.errors, life.errors


def test_a_root_that_dies_is_replaced_and_its_parts_are_read_again(
    make_combined: MakeCombined,
) -> None:
    """What the dead root had merged and nobody got comes again from the parts themselves. Back
    again, it merges nothing: its queue is closed."""
    lab = told(make_combined)
    with living(lab) as life:
        write(lab, "p1", range(100, 105))
        settled(lab, life, "c2")
        life.stop(COMBINED, "c2")
        write(lab, "p1", range(110, 115))
        write(lab, "p2", range(200, 205))
        settled(lab, life, "c1")
        for queue in (*lab.parts, COMBINED):
            life.stop(queue, "c1")
        with gone(lab, "c1"):
            life.start(COMBINED, "c2")
            assert len(lab.rows("c2")) == 4
            move(lab, "c1", "c2", dead_root=True, dead=("c1",))
            settled(lab, life, "c2")
            assert not [e for e in life.errors if e[1] == "c2" and "Lost" in e[2]], life.errors
        write(lab, "p1", range(120, 125))
        settled(lab, life, "c2")
        with pytest.raises(OtherEpoch, match="this root was deposed"):
            lab[COMBINED, "c1"].worker.work()
        lab.work("p1", "c1")
        assert len(lab.rows("c1")) == 12
        with lab[COMBINED, "c1"].session() as session, pytest.raises(StateError, match="drop-node"):
            resurrect(session, ResurrectOptions())


@contextmanager
def gone(lab: Combined, place: str) -> Iterator[None]:
    """A database that nobody can connect to."""
    node = lab[COMBINED, place]
    for allowed in (False, True):
        name = parse(node.settings.db)["dbname"]
        with connect(f"{node.settings.db} dbname=postgres", autocommit=True) as admin:
            admin.execute(f'alter database "{name}" allow_connections {allowed}')
            if not allowed:
                for other in lab.of(place):
                    other.worker._close_connections(doubtful=True)
                ending = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
                admin.execute(ending, [name])
        if allowed:
            lab.dbs[place] = connect(node.settings.db, autocommit=True)
            for other in lab.of(place):
                other.db = lab.dbs[place]
        else:
            yield
