"""Merges with upstream's nodes: parts of its roots on our leaf, parts of ours on its leaf, workers
of both on one leaf, and combined queues whose root and branch are of different makers."""

from __future__ import annotations

import pytest

from tests.labs.scene import WRITTEN, OurJob, Scene, UpstreamJob, add_column, writing
from vedur.node.info import NodeType, get_node_info

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTS = ["part1", "part2"]


def require_no_errors(scene: Scene) -> None:
    for job in scene.jobs.values():
        if isinstance(job, UpstreamJob):
            errors = [line for line in job.log_text().splitlines() if "ERROR" in line]
            assert errors == [], (job.name, errors)
    scene.wait(lambda: scene.errors() == [])


def make_parts(scene: Scene, makers: str) -> None:
    """Roots by their makers: `o` for ours, `u` for upstream's."""
    for part, maker in zip(PARTS, makers, strict=True):
        scene.place(part, kind="upstream" if maker == "u" else "ours")
        scene.job(part, f"{part}q", part, upstream=maker == "u")
        scene.create(part, "root", f"{part}_root")


def publish(scene: Scene, *others: str) -> None:
    """Put the table with some rows into the sets of all parts; others have it empty."""
    scene.sql(WRITTEN, *PARTS, *others)
    for part in PARTS:
        text = f"insert into mydata (data) select '{part}.' || i from generate_series(1, 300) i"
        scene.sql(text, part)
        scene.run(part, "add-table", "mydata")


@pytest.mark.draw("upstream")
@pytest.mark.parametrize(
    ("roots", "workers"),
    [
        pytest.param("uu", "oo", id="upstream-to-ours"),
        pytest.param("oo", "uu", id="ours-to-upstream", marks=pytest.mark.long),
        pytest.param("uo", "ou", id="both-follow-ours", marks=pytest.mark.long),
        pytest.param("ou", "uo", id="both-follow-upstream", marks=pytest.mark.long),
    ],
)
def test_parts_merge_under_writes(mixed_scene: Scene, roots: str, workers: str) -> None:
    """`o` is ours, `u` upstream's. Where the workers of the leaf are of both, the SQL is ours, and
    the first part leads the copies of the other, whoever has made them."""
    scene = mixed_scene
    make_parts(scene, roots)
    scene.place("full", kind="upstream" if workers == "uu" else "ours")
    for part, maker in zip(PARTS, workers, strict=True):
        scene.job(f"{part}_full", f"{part}q", "full", upstream=maker == "u")
        scene.create(f"{part}_full", "leaf", f"{part}_full", provider=part)
    queues = [f"{part}q" for part in PARTS]
    scene.tick()
    scene.start()
    publish(scene, "full")
    scene.sql("insert into mydata (data) values ('old')", "full")
    scene.wait(lambda: scene.known("full") == set(queues))
    with writing(scene, PARTS):
        scene.run("part1_full", "add-table", "mydata", "--merge-all")
        scene.wait_ok("full", *queues)
        count = len(scene.rows("full"))
        scene.wait(lambda: len(scene.rows("full")) > count + 30)
        for part in PARTS:
            scene.sql("update mydata set data = data || '!' where data like '%7'", part)
    assert len(scene.wait_union(PARTS, "full")) > 600
    if workers == "oo":
        # a script of both parts runs once; the leaf of upstream's is not ours to judge
        for part in PARTS:
            add_column(scene, part)
            scene.sql("update mydata set data2 = 'x' where data like '%9'", part)
        scene.wait_union(PARTS, "full")
        assert scene.columns("full") == ["id", "data", "tstamp", "data2"]
    require_no_errors(scene)


@pytest.mark.draw("upstream")
def test_a_part_of_upstreams_is_truncated_while_our_worker_is_killed(mixed_scene: Scene) -> None:
    """Its rows go and those of our root stay, though the worker dies before the commit of the batch
    that has the TRUNCATE among changes."""
    scene = mixed_scene
    make_parts(scene, "uo")
    scene.place("full")
    for part in PARTS:
        scene.job(f"{part}_full", f"{part}q", "full")
        scene.create(f"{part}_full", "leaf", f"{part}_full", provider=part)
    queues = [f"{part}q" for part in PARTS]
    scene.tick()
    scene.start()
    publish(scene, "full")
    scene.wait(lambda: scene.known("full") == set(queues))
    with writing(scene, PARTS):
        for part in PARTS:
            condition = f"--where=data like '{part}.%'"
            scene.run(f"{part}_full", "add-table", "mydata", "--no-merge", condition)
        scene.wait_ok("full", *queues)
        scene.stop("part1_full")
        scene.sql("truncate mydata", "part1")
        worker = scene.jobs["part1_full"]
        assert isinstance(worker, OurJob)
        worker.run_until_killed("batch.merged")
        old = [row for row in scene.rows("full") if "part1.7," in row]
        assert len(old) == 1  # nothing of the batch is there
        scene.start("part1_full")
        scene.wait(lambda: not [row for row in scene.rows("full") if "part1.7," in row])
        assert len([row for row in scene.rows("full") if "part2." in row]) >= 300
    assert len(scene.wait_union(PARTS, "full")) > 300
    require_no_errors(scene)


@pytest.mark.long
@pytest.mark.parametrize("makers", ["uo", "ou"])
def test_a_combined_queue_has_nodes_of_both(mixed_scene: Scene, makers: str) -> None:
    """The combined root is of one maker and its branch of the other, each with both parts; one part
    has a root of ours, the other one of upstream's. Upstream's branch can take over from ours."""
    scene = mixed_scene
    make_parts(scene, "ou")
    queues = [f"{part}q" for part in PARTS]
    for place, maker in zip(("c1", "c2"), makers, strict=True):
        upstream = maker == "u"
        scene.place(place, kind="upstream" if upstream else "ours")
        scene.job(place, "all", place, upstream=upstream)
        for part in PARTS:
            scene.job(f"{part}_{place}", f"{part}q", place, upstream=upstream)
    scene.create("c1", "root", "c1")
    scene.create("c2", "branch", "c2", provider="c1")
    for place in ("c1", "c2"):
        for part in PARTS:
            scene.create(f"{part}_{place}", "leaf", place, provider=part, merge="all")
    scene.tick()
    scene.start()
    publish(scene, "c1", "c2")
    scene.wait(lambda: scene.known("c1") == {"all", *queues})
    with writing(scene, PARTS):
        scene.run("part1_c1", "add-table", "mydata", "--merge-all")
        scene.wait_ok("c1", "all", *queues)
        for part in PARTS:
            # one by one: a part of upstream's that waits behind does not hear of new tables
            scene.run(f"{part}_c2", "add-table", "mydata")
        scene.wait_ok("c2", "all", *queues)
        for part in PARTS:
            scene.sql("update mydata set data = data || '!' where data like '%7'", part)
        go_on(scene, "c2")
        root, branch = "c1", "c2"
        if makers == "ou":
            scene.run("c2", "takeover", "c1")
            root, branch = "c2", "c1"
            assert kinds(scene, root, branch) == [NodeType.ROOT, NodeType.BRANCH]
            go_on(scene, branch)
        # ours cannot know what upstream's root has merged when it is closed, and says so
        scene.run(branch, "takeover", root, "--no-compare", code=3)
        assert kinds(scene, root, branch) == [NodeType.ROOT, NodeType.BRANCH]
        go_on(scene, branch)
    assert len(scene.wait_union(PARTS, "c1", "c2")) > 600
    merged = places(scene, root)
    scene.wait(lambda: all(a >= b for a, b in zip(places(scene, branch), merged, strict=True)))
    require_no_errors(scene)


def go_on(scene: Scene, place: str) -> None:
    """Until a node has got some more of what is written now."""
    count = len(scene.rows(place))
    scene.wait(lambda: len(scene.rows(place)) > count + 20)


def kinds(scene: Scene, *names: str) -> list[NodeType]:
    infos = [get_node_info(scene.dbs[name], "all") for name in names]
    return [info.node_type for info in infos if info is not None]


def places(scene: Scene, place: str) -> list[int]:
    """How far a node has the parts."""
    infos = [get_node_info(scene.dbs[place], f"{part}q") for part in PARTS]
    return [info.worker_last_tick or 0 for info in infos if info is not None]
