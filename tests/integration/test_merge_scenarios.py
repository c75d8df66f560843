"""What Londiste's own test scripts do with merges, in the order of their commands, with assertions
where they print: `merge`, `merge_all`, `noqueue_merge`, `test-weird-merge`, `takeover-merge`.

Where the scripts sleep, these tests wait for what the sleep is for. Workers run all the time, as in
the scripts; their staging tasks run in this process.
"""

from __future__ import annotations

import pytest

from tests.fixtures.wait import until
from tests.labs.scene import MYDATA, PATIENCE, WRITTEN, Scene, add_column, writing
from vedur import failpoint
from vedur.db import Database, connect
from vedur.node.info import NodeType, get_node_info
from vedur.node.part import read_parts

pytestmark = [pytest.mark.draw("merges"), pytest.mark.timeout(900)]

INDEXES = "select array_agg(indexdef order by 1) from pg_indexes where tablename = %s"


def insert(scene: Scene, parts: list[str], first: int) -> None:
    """One row on each part, with keys that go up."""
    for number, part in enumerate(parts, first):
        scene.sql(f"insert into mydata values ({number}, '{part}')", part)


def position(scene: Scene, place: str, queue: str) -> int:
    info = get_node_info(scene.dbs[place], queue)
    assert info is not None and info.worker_last_tick is not None
    return info.worker_last_tick


def newest(scene: Scene, place: str, queue: str) -> int:
    return int(scene.dbs[place].value("select last_tick_id from pgq.get_queue_info(%s)", [queue]))


class Roles:
    """Looks at the roles of parts in a database at two moments of their first copies: when the lead
    has stripped the table, nobody has loaded yet; when it gives the indexes back, all have."""

    def __init__(self, scene: Scene, place: str, *queues: str) -> None:
        self._connstr, self._queues = scene.dbs[place].connstr, queues
        self.led: dict[str, tuple[str, str]] = {}
        self.rebuilt: dict[str, tuple[str, str]] = {}
        self.indexes: object = "nobody has looked"

    def __enter__(self) -> Roles:
        failpoint.set_hook(self)
        return self

    def __exit__(self, *exc: object) -> None:
        failpoint.set_hook(None)

    def __call__(self, point: str) -> None:
        if point not in ("copy.led", "copy.rebuild"):
            return
        with connect(self._connstr, autocommit=True) as db:
            if point == "copy.led":
                # it is held here until all parts have come to the place where they wait for it
                begun = [("in-copy", "lead"), *[("in-copy", "wait-copy")] * (len(self._queues) - 1)]
                until(lambda: list(self._read(db).values()) == begun, PATIENCE)
                self.led = self._read(db)
            else:
                self.rebuilt = self._read(db)
                self.indexes = db.value(INDEXES, ["mydata"])

    def _read(self, db: Database) -> dict[str, tuple[str, str]]:
        text = "select merge_state, copy_role from londiste.get_table_list(%s)"
        return {queue: tuple(db.one(text, [queue])) for queue in self._queues}  # type: ignore[misc]

    def require_order(self) -> None:
        """The queue whose name comes first has led, and all the others have waited twice."""
        lead, *others = self._queues
        assert self.led == {
            lead: ("in-copy", "lead"),
            **dict.fromkeys(others, ("in-copy", "wait-copy")),
        }
        assert self.rebuilt == {
            lead: ("catching-up", None),
            **dict.fromkeys(others, ("catching-up", "wait-replay")),
        }
        assert self.indexes is None


def require_quiet(scene: Scene) -> None:
    """Nothing failed, and copies have left nothing behind."""
    scene.wait(lambda: scene.errors() == [])
    for place, db in scene.dbs.items():
        for text in (
            "select consumer_name from pgq_node.local_state where consumer_name like '%.copy.%'",
            "select co_name from pgq.subscription join pgq.consumer on co_id = sub_consumer"
            " where co_name like '%.copy.%'",
            "select table_name from londiste.table_info where dropped_ddl is not null",
            "select table_name from vedur.copy_slice",
        ):
            scene.wait(lambda db=db, text=text: db.query(text) == [])  # type: ignore[misc]
        assert db.query("select * from vedur.replay_error") == [], place


def test_parts_become_a_queue_with_nodes_below(scene: Scene) -> None:
    """`merge`: four parts are merged into a combined root and into its branch; below them are a
    branch and a leaf. A script that every part sends runs once on each node.

    Two things are otherwise on purpose. The parts of the combined branch wait behind the combined
    queue, so their tables are in sync at once, and the branch has one copy, not one for each part.
    And that copy waits by itself for the copies of the parts on the combined root."""
    parts, full = ["part1", "part2", "part3", "part4"], ["full1", "full2", "full3", "full4"]
    queues = [f"replika_{part}" for part in parts]
    scene.place(*parts, *full)
    for part in parts:
        scene.job(part, f"replika_{part}", part)
        for dst in ("full1", "full2"):
            scene.job(f"{part}_{dst}", f"replika_{part}", dst)
    for dst in full:
        scene.job(dst, "replika", dst)
    scene.create("full1", "root", "fnode1")
    scene.create("full2", "branch", "fnode2", provider="full1")
    scene.create("full3", "branch", "fnode3", provider="full1")
    scene.create("full4", "leaf", "fnode4", provider="full2")
    for number, part in enumerate(parts, 1):
        scene.create(part, "root", f"p{number}root")
    for dst in ("full1", "full2"):
        for part in parts:
            job = f"{part}_{dst}"
            scene.create(job, "leaf", f"merge_{job}", provider=part, merge="replika")
    scene.tick()
    scene.start()

    scene.sql(MYDATA, *parts)
    for part in parts:
        scene.run(part, "add-table", "mydata")
    for dst in ("full1", "full2"):
        scene.wait(lambda dst=dst: scene.known(dst) == {"replika", *queues})  # type: ignore[misc]
    insert(scene, parts, 1)

    scene.sql(MYDATA, "full1")
    scene.run("full1", "add-table", "mydata")
    assert scene.states("full1") == {"replika": "ok"}
    with Roles(scene, "full1", *queues) as roles:
        scene.run("part1_full1", "add-table", "mydata", "--merge-all")
        scene.wait_ok("full1", "replika", *queues)
    roles.require_order()
    assert scene.rows("full1") == scene.rows(*parts)

    scene.run("full2", "add-table", "mydata", "--create")
    scene.run("part1_full2", "add-table", "mydata", "--merge-all")
    assert {q: s for q, s in scene.states("full2").items() if q != "replika"} == dict.fromkeys(
        queues, "ok"
    )
    scene.run("full2", "wait-sync")  # until it has its key again, nobody can make one like it
    for dst in ("full3", "full4"):
        scene.run(dst, "add-table", "mydata", "--create")
    for dst in ("full3", "full4"):
        scene.run(dst, "wait-sync")
    insert(scene, parts, 5)
    assert len(scene.wait_union(parts, *full)) == 8
    assert scene.states("full3") == scene.states("full4") == {"replika": "ok"}
    for dst in ("full1", "full2"):
        assert scene.states(dst) == dict.fromkeys(["replika", *queues], "ok")

    for part in parts:  # at once, one after the other: nobody waits for a lock that another has
        add_column(scene, part)
    for part in parts:
        scene.sql(f"update mydata set data2 = 'of {part}'", part)
    assert len(scene.wait_union(parts, *full)) == 8
    for place in (*parts, *full):
        assert scene.columns(place) == ["id", "data", "data2"], place
    wait_told(scene, "replika", "full1", "full2")
    require_quiet(scene)


def wait_told(scene: Scene, queue: str, root: str, branch: str) -> None:
    """Until a combined branch has heard of all that its root has of each part now."""
    merged = read_parts(scene.dbs[root], queue)

    def told() -> bool:
        here = read_parts(scene.dbs[branch], queue)
        return all(here[name].tick >= part.tick for name, part in merged.items())

    scene.wait(told)
    assert all(part.told for part in read_parts(scene.dbs[branch], queue).values())


def test_shards_come_together_in_one_database(scene: Scene) -> None:
    """`merge_all`: two sets, one leaf of both, `wait-root` and `wait-sync` between the steps."""
    parts = ["part1", "part2"]
    queues = [f"replika_{part}" for part in parts]
    scene.place(*parts, "full")
    for part in parts:
        scene.job(part, f"replika_{part}", part)
        scene.job(f"{part}_full", f"replika_{part}", "full")
    for part in parts:
        scene.create(part, "root", f"{part}_root")
    for part in parts:
        scene.create(f"{part}_full", "leaf", f"merge_{part}_full", provider=part)
    scene.tick()
    scene.start()
    scene.sql(MYDATA, *parts)
    for part in parts:
        scene.run(part, "add-table", "mydata")

    def wait_root() -> None:
        for part in parts:
            before = newest(scene, part, f"replika_{part}")
            scene.run(f"{part}_full", "wait-root")
            assert position(scene, "full", f"replika_{part}") > before

    wait_root()
    assert scene.known("full") == set(queues)
    insert(scene, parts, 1)
    scene.sql(MYDATA, "full")
    before = scene.dbs["full"].value(INDEXES, ["mydata"])
    # without the option it is refused: the set does not say whose rows are meant
    scene.run("part1_full", "add-table", "mydata", code=1)
    assert scene.states("full") == {}
    with Roles(scene, "full", *queues) as roles:
        scene.run("part1_full", "add-table", "mydata", "--merge-all")
        for part in parts:
            scene.run(f"{part}_full", "wait-sync")
    roles.require_order()
    assert scene.states("full") == dict.fromkeys(queues, "ok")
    assert scene.dbs["full"].value(INDEXES, ["mydata"]) == before
    assert {row.table_attrs for row in scene.tables("full").values()} == {"merge=1"}
    assert scene.rows("full") == scene.rows(*parts)
    insert(scene, parts, 3)
    wait_root()
    assert scene.rows("full") == scene.rows(*parts)
    for part in parts:
        add_column(scene, part)
        scene.run(f"{part}_full", "wait-root")
    for number, part in enumerate(parts, 5):
        scene.sql(f"insert into mydata values ({number}, '{part}', 'x')", part)
    wait_root()
    assert scene.rows("full") == scene.rows(*parts)
    assert [row for row in scene.rows("full") if row.endswith(",x)")] == [
        "(5,part1,x)",
        "(6,part2,x)",
    ]
    require_quiet(scene)


def test_four_shards_in_each_of_two_databases(scene: Scene) -> None:
    """`noqueue_merge`: the table is created by the command, and both databases copy at a time."""
    parts, full = ["part1", "part2", "part3", "part4"], ["full1", "full2"]
    queues = [f"l3_{part}_q" for part in parts]
    scene.place(*parts, *full)
    for part in parts:
        for place in (part, *full):
            scene.job(f"l3_{part}_q_{place}", f"l3_{part}_q", place)
    for part in parts:
        scene.create(f"l3_{part}_q_{part}", "root", f"{part}_root")
    for dst in full:
        for part in parts:
            job = f"l3_{part}_q_{dst}"
            scene.create(job, "leaf", f"merge_{part}_{dst}", provider=part)
    scene.tick()
    scene.start()
    scene.sql(MYDATA, *parts)
    for part in parts:
        scene.run(f"l3_{part}_q_{part}", "add-table", "mydata")
    for dst in full:
        scene.wait(lambda dst=dst: scene.known(dst) == set(queues))  # type: ignore[misc]
    assert scene.states("full1") == scene.states("full2") == {}
    insert(scene, parts, 1)
    for dst in full:
        scene.run(f"l3_part1_q_{dst}", "add-table", "mydata", "--create", "--merge-all")
        assert set(scene.states(dst)) == set(queues)
    for dst in full:
        scene.wait_ok(dst, *queues)
    insert(scene, parts, 5)
    assert len(scene.wait_union(parts, *full)) == 8
    for dst in full:
        assert scene.dbs[dst].value(INDEXES, ["mydata"]) == scene.dbs["part1"].value(
            INDEXES, ["mydata"]
        )
    require_quiet(scene)


def test_parts_are_copied_past_a_branch_that_has_no_table(scene: Scene) -> None:
    """`test-weird-merge`: two of three parts come through branches in one database, which do not
    have the table, so their rows are copied from the roots; the third comes from its root. Changes
    take the way through the branches."""
    parts = ["db1", "db2", "db3"]
    queues = ["part0q", "part1q", "part2q"]
    scene.place(*parts, "db4", "db5")
    for number, place in enumerate(parts):
        scene.job(f"l3_part{number}_{place}", f"part{number}q", place)
    for number in (0, 1):
        scene.job(f"l3_part{number}_db4", f"part{number}q", "db4")
    for number in (0, 1, 2):
        scene.job(f"l3_part{number}_db5", f"part{number}q", "db5")
    for number, place in enumerate(parts):
        scene.create(f"l3_part{number}_{place}", "root", f"node{number + 1}")
    for number in (0, 1):
        scene.create(f"l3_part{number}_db4", "branch", "node4", provider=parts[number])
    for number, provider in enumerate(("db4", "db4", "db3")):
        scene.create(f"l3_part{number}_db5", "leaf", "node5", provider=provider)
    scene.tick()
    for number, (place, nodes) in enumerate(
        zip(parts, [("node1", "node4", "node5"), ("node2", "node4", "node5"), ("node3", "node5")],
            strict=True)
    ):  # fmt: skip
        said = scene.run(f"l3_part{number}_{place}", "status")
        assert all(node in said for node in nodes), said
    scene.start()
    scene.sql(MYDATA, *parts, "db5")
    for number, place in enumerate(parts, 1):
        scene.sql(
            f"insert into mydata select i + {number}00, '{place} row' || i"
            " from generate_series(1, 4) i",
            place,
        )
    for number, place in enumerate(parts):
        scene.run(f"l3_part{number}_{place}", "add-table", "mydata")
    for number in range(3):
        scene.run(f"l3_part{number}_db5", "wait-root")
    assert scene.known("db5") == set(queues)

    # without the option it is refused, because the provider does not have the table
    scene.run("l3_part0_db5", "add-table", "mydata", "--merge-all", code=1)
    assert scene.states("db5") == {}
    with CopySources(scene) as sources:
        scene.run("l3_part0_db5", "add-table", "mydata", "--merge-all", "--find-copy-node")
        scene.run("l3_part0_db5", "wait-sync")
        scene.wait_ok("db5", *queues)
    assert sources.seen == {"part0q": {"node1"}, "part1q": {"node2"}, "part2q": {"node3"}}
    assert scene.rows("db5") == scene.rows(*parts)
    assert len(scene.rows("db5")) == 12
    assert scene.states("db4") == {}
    for place in parts:
        scene.sql("update mydata set data = data || '!' where id % 2 = 0", place)
        scene.sql("delete from mydata where id % 100 = 1", place)
    for number in range(3):
        scene.run(f"l3_part{number}_db5", "wait-root")
    assert scene.rows("db5") == scene.rows(*parts)
    assert len(scene.rows("db5")) == 9
    info = get_node_info(scene.dbs["db5"], "part0q")
    assert info is not None and info.provider_node == "node4"
    require_quiet(scene)


class CopySources:
    """Writes down which node each copy reads from, while it loads."""

    def __init__(self, scene: Scene) -> None:
        self._connstr = scene.dbs["db5"].connstr
        self.seen: dict[str, set[str]] = {}

    def __enter__(self) -> CopySources:
        failpoint.set_hook(self)
        return self

    def __exit__(self, *exc: object) -> None:
        failpoint.set_hook(None)

    def __call__(self, point: str) -> None:
        if point != "copy.loaded":
            return
        text = (
            "select queue_name, provider_node from pgq_node.local_state"
            " where consumer_name like '%.copy.%'"
        )
        with connect(self._connstr, autocommit=True) as db:
            for row in db.query(text):
                self.seen.setdefault(row[0], set()).add(row[1])


def test_the_combined_root_moves_there_and_back_three_times(scene: Scene) -> None:
    """`takeover-merge`: under load, each time after the worker of a waiting part was away. What it
    has missed does not hold the takeover up: rows come through the combined queue.

    The commands compare nothing, since that takes Spark; rows are compared here in the end."""
    sources, targets = ["source1", "source2"], ["target1", "target2"]
    scene.place(*sources, *targets)
    for number, place in enumerate(sources, 1):
        scene.job(f"sourceq{number}_{place}", f"sourceq{number}", place)
    for number in (1, 2):
        for dst in targets:
            scene.job(f"sourceq{number}_{dst}", f"sourceq{number}", dst)
    for dst in targets:
        scene.job(f"targetq_{dst}", "targetq", dst)
    for number, place in enumerate(sources, 1):
        scene.create(f"sourceq{number}_{place}", "root", place)
    scene.create("targetq_target1", "root", "target1")
    scene.create("targetq_target2", "branch", "target2", provider="target1")
    for number, place in enumerate(sources, 1):
        for dst in targets:
            scene.create(f"sourceq{number}_{dst}", "leaf", dst, provider=place, merge="targetq")
    scene.tick()
    for job in ("sourceq1_target1", "sourceq2_target1", "targetq_target1"):
        assert "target1" in scene.run(job, "status")
    scene.start()

    scene.sql(WRITTEN, *sources, *targets)
    for number, place in enumerate(sources, 1):
        rows = f"select 's{number}.row' || i from generate_series(1, 10) i"
        scene.sql(f"insert into mydata (data) {rows}", place)
        scene.run(f"sourceq{number}_{place}", "add-table", "mydata")
    queues = ["sourceq1", "sourceq2"]
    for dst in targets:
        scene.wait(lambda dst=dst: scene.known(dst) >= set(queues))  # type: ignore[misc]
    scene.run("sourceq1_target1", "add-table", "mydata", "--merge-all")
    scene.run("sourceq1_target1", "wait-sync")
    scene.run("sourceq1_target2", "add-table", "mydata", "--merge-all")
    scene.run("targetq_target2", "wait-sync")
    for dst in targets:
        scene.wait_ok(dst, *queues, "targetq")
        assert scene.rows(dst) == scene.rows(*sources)

    with writing(scene, sources):
        for _ in range(3):
            for new, old in (("target2", "target1"), ("target1", "target2")):
                if new == "target2":
                    scene.stop("sourceq2_target2")
                    count = len(scene.rows("target2"))
                    scene.wait(lambda count=count: len(scene.rows("target2")) > count + 10)  # type: ignore[misc]
                    scene.start("sourceq2_target2")
                scene.run(f"targetq_{new}", "takeover", old, "--no-compare")
                kinds = [get_node_info(scene.dbs[place], "targetq") for place in (new, old)]
                assert [info and info.node_type for info in kinds] == [
                    NodeType.ROOT,
                    NodeType.BRANCH,
                ]
                for job in ("sourceq1_target1", "sourceq2_target2", "targetq_target1"):
                    scene.run(job, "status")
                count = len(scene.rows(new))
                scene.wait(lambda new=new, count=count: len(scene.rows(new)) > count + 5)  # type: ignore[misc]
    assert len(scene.wait_union(sources, *targets)) > 60
    wait_told(scene, "targetq", "target1", "target2")
    require_quiet(scene)
