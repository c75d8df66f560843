"""Several queues in one process with Spark: one Java, and no queue that holds another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.place import new_place
from tests.fixtures.processes import children
from tests.labs.queues import Queues, javas, taken
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


@pytest.mark.long
def test_memory_of_eight_queues(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The goal is at most 250 MB beyond a worker of one queue."""
    queues = Queues(lab, range(1, 9))
    queues.build()
    told = []
    for numbers in (range(1, 2), range(1, 9)):
        queues.start(*numbers)
        pid = queues.pid(1)
        assert pid is not None
        queues.wait_equal(*numbers)
        for _ in range(5):
            for n in numbers:
                queues.write(n, 2_000)
            queues.wait_equal(*numbers)
        (java,) = javas(pid)
        tasks = [task for daemon in children(java) for task in (daemon, *children(daemon))]
        sizes = [taken(pid), taken(java), sum(map(taken, tasks))]
        told.append(sizes)
        shown = ", ".join(
            f"{name} {size:.0f}"
            for name, size in zip(("Python", "Java", "tasks"), sizes, strict=True)
        )
        with capsys.disabled():
            print(f"\n{len(numbers)} queues, MB taken: {shown}, all {sum(sizes):.0f}")
        queues.ask("-s", *numbers)
        queues.wait(lambda: queues.pid(1) is None, "the end")
    with capsys.disabled():
        print(f"eight queues take {sum(told[1]) - sum(told[0]):.0f} MB more than one")
