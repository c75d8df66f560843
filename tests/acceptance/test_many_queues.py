"""Several queues in one process with Spark: one Java, and no queue that holds another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.place import new_place
from tests.fixtures.processes import children, taken
from tests.labs.queues import Queues, javas
from vedur import db as vdb
from vedur.demo.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        yield lab
    finally:
        lab.close()


def open_door(queues: Queues, n: int, yes: bool) -> None:
    """Let nobody into the database of a leaf, or everybody again."""
    with vdb.connect(queues.lab.servers["site"].connstr(), autocommit=True) as db:
        db.execute(f"alter database l{n} allow_connections {yes}")
        db.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = 'l{n}'")


@pytest.mark.draw("programs")
def test_three_queues_in_one_process(lab: Lab) -> None:
    queues = Queues(lab, range(1, 4), frozenset({3}))
    queues.build()
    open_door(queues, 3, False)
    said = queues.start(1, 2, 3)
    assert said.startswith('queue "q3" (') and "is tried again" in said
    pid = queues.pid(1)
    assert pid is not None and queues.pid(2) == queues.pid(3) == pid
    queues.wait_equal(1, 2)

    open_door(queues, 3, True)  # it has been tried meanwhile, and is served now
    queues.wait_equal(3)
    (java,) = javas(pid)

    # A slow queue: somebody holds its table.
    with vdb.connect(queues.leaf(1)) as holder:
        holder.execute("lock table t1 in exclusive mode")  # others may read it
        for n in (1, 2, 3):
            queues.write(n, 50)
        queues.wait_equal(2, 3)
        assert not queues.equal(1)
    queues.wait_equal(1)

    # One is stopped, one reads its ini again.
    queues.ask("-s", 2)
    queues.wait(lambda: queues.pid(2) is None, "q2 to stop")
    queues.ask("-r", 1)
    queues.wait(lambda: "Config reloaded" in queues.log(1), "q1 to reload")
    for n in (1, 2, 3):
        queues.write(n, 50)
    queues.wait_equal(1, 3)
    assert not queues.equal(2)
    assert javas(pid) == [java]

    # A comparison of a node uses the session of its worker.
    done = lab.londiste("leaf3", "compare", "t3", "-v")
    assert "starting" not in done.stderr.lower()

    # Java dies, and one comes for both.
    queues.kill(java)
    for n in (1, 3):
        queues.write(n, 50)
    queues.wait_equal(1, 3)
    assert len(javas(pid)) == 1
    again = "Spark has gone, starting it again"
    assert sum(queues.log(n).count(again) for n in (1, 3)) == 1

    # The whole process dies; all come back.
    queues.kill(pid)
    for n in (1, 2, 3):
        queues.write(n, 50)
    assert queues.start(1, 2, 3) == ""
    queues.wait_equal(1, 2, 3)
    queues.ask("-s", 1, 2, 3)
    queues.wait(lambda: [queues.pid(n) for n in (1, 2, 3)] == [None] * 3, "the end")
    for n in (1, 2, 3):
        assert "Traceback" not in queues.log(n) and "BUG:" not in queues.log(n)


#: A table of four slices (a row on each page), and one of the same columns that lets nobody in
#: while somebody holds a lock.
WIDE = "create table wide (id int primary key, v text) with (fillfactor = 10)"
FILL = "insert into wide select i, repeat(md5(i::text), 22) from generate_series(1, 16000) i"
GATE = """
create table wide (id int primary key, v text);
create function wait_at_gate() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(7);
    return null;
end $$;
create trigger gate before insert on wide execute function wait_at_gate();
alter table wide enable always trigger gate;
"""


@pytest.mark.draw("programs")
def test_a_queue_whose_tasks_all_hang_leaves_a_slot_to_the_other(lab: Lab) -> None:
    """Of four slots the first copy of one queue keeps one, in a task that does not get on, and two
    slices of its backlog keep two. Batches and a first copy of the other queue go on meanwhile."""
    spark = "\n[spark]\nspark.master = local[4]\n"
    queues = Queues(lab, range(1, 3), frozenset({2}), spark, {"resident_task": "off"})
    queues.build()
    queues.start(1, 2)
    queues.wait_equal(1, 2)

    with vdb.connect(queues.root(1), autocommit=True) as root:
        root.execute(WIDE)
        root.execute(FILL)
    with (
        vdb.connect(queues.leaf(1), autocommit=True) as gate,
        vdb.connect(queues.root(1)) as events,
    ):
        gate.execute(GATE)
        gate.execute("select pg_advisory_lock(7)")
        lab.londiste("root1", "add-table", "wide")
        lab.londiste("leaf1", "add-table", "wide")
        queues.wait(lambda: waiting(queues.leaf(1), "vedur copy%") == 1, "a slice that is held")

        # A backlog of more than two slices, of which nothing can be read.
        lab.londiste("leaf1", "pause")
        queues.write(1, 30_000)
        queues.tick(1)
        events.execute(f"lock table {events.value('select pgq.current_event_table(%s)', ['q1'])}")
        lab.londiste("leaf1", "resume")
        queues.wait(lambda: waiting(queues.root(1), "vedur task") == 2, "two slices that are held")

        for _ in range(5):
            queues.write(2, 50)
            queues.wait_equal(2)
        with vdb.connect(queues.root(2), autocommit=True) as root:
            root.execute("create table more (id int primary key)")
            root.execute("insert into more values (1), (2)")
        lab.londiste("root2", "add-table", "more")
        lab.londiste("leaf2", "add-table", "more", "--create", "--wait-sync")
        queues.write(2, 50)
        queues.wait_equal(2)
        assert waiting(queues.leaf(1), "vedur copy%") == 1
        assert waiting(queues.root(1), "vedur task") == 2
        assert not queues.equal(1)
    lab.londiste("leaf1", "wait-sync")
    queues.wait_equal(1)
    with vdb.connect(queues.leaf(1)) as leaf:
        assert leaf.value("select count(*) from wide") == 16000


def waiting(connstr: str, who: str) -> int:
    """How many sessions with such a name wait for a lock in a database."""
    text = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database() and application_name like %s"
    )
    with vdb.connect(connstr) as db:
        return int(db.value(text, [who]))


@pytest.mark.long
def test_memory_of_eight_queues(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight queues take at most 250 MB more than one, while changes come through all of them."""
    queues = Queues(lab, range(1, 9))
    queues.build()
    told = []
    for numbers in (range(1, 2), range(1, 9)):
        queues.start(*numbers)
        pid = queues.pid(1)
        assert pid is not None
        for n in numbers:
            queues.write(n, 5_000)
        queues.wait_equal(*numbers)
        most = memory_under_load(queues, numbers, pid, 60.0)
        queues.wait_equal(*numbers)
        rest = parts_of(pid)
        told.append((sum(most.values()), sum(rest.values())))
        with capsys.disabled():
            for when, sizes in (("under load, at most", most), ("then", rest)):
                shown = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
                print(f"\n{len(numbers)} queues, MB {when}: {shown}, all {sum(sizes.values()):.0f}")
        queues.ask("-s", *numbers)
        queues.wait(lambda: queues.pid(1) is None, "the end")
    more = [eight - one for one, eight in zip(*told, strict=True)]
    with capsys.disabled():
        print(f"eight queues take {more[0]:.0f} MB more than one under load, {more[1]:.0f} then")
    assert max(more) <= 250


def parts_of(pid: int) -> dict[str, float]:
    """Memory of a worker: of Python, of Java, and of its task processes; MB."""
    (java,) = javas(pid)
    daemons = [p for p in (*children(pid), *children(java)) if p != java]
    tasks = [task for daemon in daemons for task in (daemon, *children(daemon))]
    return {
        "Python": taken(pid),
        "Java": taken(java),
        f"{len(tasks)} task processes": sum(map(taken, tasks)),
    }


def memory_under_load(queues: Queues, numbers: range, pid: int, seconds: float) -> dict[str, float]:
    """Write to all roots for a while; returns what the worker took when it took most."""
    stop = threading.Event()

    def write(n: int) -> None:
        while not stop.is_set():
            queues.change(n, 500)
            stop.wait(0.5)

    found = []
    with ThreadPoolExecutor(len(numbers)) as pool:
        writers = [pool.submit(write, n) for n in numbers]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a task has ended
                found.append(parts_of(pid))
            time.sleep(1.0)
        stop.set()
    for writer in writers:
        writer.result()
    return max(found, key=lambda sizes: sum(sizes.values()))
