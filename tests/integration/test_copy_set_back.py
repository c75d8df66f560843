"""The source of a first copy is set back while the copy is under way: a standby that was behind is
promoted, or a backup restored. Numbers of lost transactions and ticks come a second time, and the
copy must not take what is new for what it has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS, TestServer
from tests.labs.backup import DataDirectory, burn
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur import failpoint
from vedur.clock import SYSTEM
from vedur.errors import VedurError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.worker.first_copy.source_check import look_at_source

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(120)]

MakeChain = Callable[..., Chain]
LOW = "low"


class Stops:
    """Failpoints at which whoever comes fails."""

    def __init__(self) -> None:
        self.at: set[str] = set()
        failpoint.set_hook(self._fail)

    def _fail(self, point: str) -> None:
        if point in self.at:
            raise VedurError(f"not yet: {point}")


@pytest.fixture
def stops() -> Iterator[Stops]:
    yield Stops()
    failpoint.set_hook(None)


class Lab:
    """A set whose node `source` has a server of its own; leaf `low` below the root copies from
    there."""

    def __init__(self, chain: Chain, source: Node, server: DataDirectory) -> None:
        self.chain, self.source, self.server, self.low = chain, source, server, chain[LOW]
        self.tables: list[str] = []

    def create_tables(self, *names: str) -> None:
        for name in names:
            self.chain.table(
                f"public.{name}", f"create table {name} (id int primary key, v text)",
                on=[self.source.name],
            )  # fmt: skip
            self.tables.append(name)
        self.write("insert into {} select i, 'a' from generate_series(1, 20) i")
        self.catch_up()

    def write(self, text: str) -> None:
        for name in self.tables:
            self.chain.root.execute(text.format(name))

    def catch_up(self) -> None:
        self.chain.catch_up()

    def add_tables(self, **options: Any) -> None:
        other = self.source is not self.chain.nodes[0]
        with self.low.session() as session:
            add_table(
                session,
                AddTable(
                    tables=[f"public.{name}" for name in self.tables],
                    copy_node=self.source.name if other else None,
                    **options,
                ),
            )

    def reach(self, done: Callable[[], bool]) -> None:
        """Let the leaf do rounds until something is so; then its process ends."""
        end = SYSTEM.monotonic() + 60
        while not done():
            assert SYSTEM.monotonic() < end, "that takes too long"
            try:
                self.low.worker.work()
            except VedurError:
                SYSTEM.sleep(0)
            SYSTEM.sleep(0.02)
        self.end_leaf()

    def end_leaf(self) -> None:
        self.low.close()
        self.low.renew()

    def load(self, stops: Stops) -> None:
        """The copies are loaded, and have not begun to catch up."""
        stops.at = {"copy.catch_up"}
        self.reach(lambda: set(self.chain.states(LOW).values()) == {"catching-up"})

    def registered(self) -> bool:
        text = "select consumer_name from pgq.get_consumer_info(%s)"
        found = [row[0] for row in self.source.db.query(text, [QUEUE])]
        return sum(".copy." in name for name in found) == len(self.tables)

    def save(self) -> None:
        self.source.worker._close_connections()
        self.server.save()
        self.source.renew()

    def restore(self) -> None:
        self.source.worker._close_connections()
        self.server.restore()
        self.source.renew()

    def finish(self) -> None:
        """All is as it should be in the end."""
        names = {f"public.{name}" for name in self.tables}
        self.chain.work_until(lambda: self.chain.states(LOW) == dict.fromkeys(names, "ok"))
        self.catch_up()
        for name in self.tables:
            self.chain.require_same(name)


@pytest.fixture
def make_lab(make_chain: MakeChain, servers: Any) -> Iterator[Callable[..., Lab]]:
    made: list[Chain] = []

    def make(source: str) -> Lab:
        chain = make_chain(1)
        private = servers.private(max(VERSIONS))
        hosts = TestServer(private)
        name = hosts.create_database(hosts.template())
        hosts.admin.close()
        db = vdb.connect(private.connstr(name), autocommit=True)
        if source == "root":
            chain = Chain([db], chain.make_db)
            made.append(chain)
        else:
            chain.add("n2", NodeType.BRANCH, db)
        chain.add(LOW, NodeType.LEAF, chain.make_db(), provider="n1")
        return Lab(chain, chain["n1" if source == "root" else "n2"], DataDirectory(private, db))

    yield make
    for chain in made:
        chain.close()


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return [line for line in found if words in line]


@pytest.mark.parametrize("source", ["root", "branch"])
def test_the_source_loses_what_the_snapshot_saw(
    make_lab: Callable[..., Lab], stops: Stops, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    lab = make_lab(source)
    lab.create_tables(*(("t",) if source == "branch" else ("t", "u", "v")))
    stops.at = {"copy.snapshot"}
    lab.add_tables()
    lab.reach(lab.registered)
    lab.save()
    # the last second: other business, and the copy
    burn(lab.source.db, 2000)
    if source == "branch":  # a root that loses what the worker has applied, says so itself
        lab.write("insert into {} values (100, 'in the copy')")
        lab.catch_up()
        lab.end_leaf()
    else:
        lab.write("insert into {} values (100, 'in the copy, and lost')")
    lab.load(stops)
    lab.restore()
    if source == "branch":
        with lab.source.session() as session:
            rejoin(session, RejoinOptions(apply=True))
    # it goes on, with changes of one table; then nothing in its numbers tells any more
    lab.chain.root.execute("insert into t values (200, 'behind the copy')")
    lab.chain.root.execute("update t set v = 'changed' where id < 10")
    lab.chain.tick()
    while source == "branch" and lab.source.worker.work():
        pass
    burn(lab.source.db, 3000)
    stops.at = set()
    lab.finish()
    said = warnings(caplog, "was set back (it does not have what the copy marked there")
    assert len(said) == len(lab.tables)
    if source == "branch":
        assert said[0].endswith('node "n2" was set back (it does not have what the copy marked '
                                "there behind its snapshot), the copy starts again")  # fmt: skip


def test_the_root_loses_ticks_that_the_copy_has_reached(
    make_lab: Callable[..., Lab], stops: Stops, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker is behind the copy and has lost nothing."""
    lab = make_lab("root")
    lab.create_tables("t")
    lab.add_tables()
    lab.load(stops)
    lab.save()
    stops.at = {"copy.hand_over", "batch.taken"}
    lab.write("update {} set v = 'lost' where id < 5")
    lost = [lab.chain.tick() for _ in range(3)][-1]
    at = "select last_tick_id from pgq_node.local_state where consumer_name ~ 'copy'"
    lab.reach(lambda: lab.low.db.value(at) == lost)
    assert lab.low.position < lost
    lab.restore()
    lab.write("update {} set v = 'changed' where id > 15")
    while lab.chain.tick() < lost:
        pass
    stops.at = set()
    lab.finish()
    assert warnings(caplog, f"its tick {lost} is not the tick {lost} that the copy has reached")


def copied(make_chain: MakeChain, stops: Stops, *tables: str, **options: Any) -> Chain:
    """Tables that are loaded on a leaf and have not begun to catch up."""
    chain = make_chain(2)
    for name in tables:
        chain.table(f"public.{name}", f"create table {name} (id int primary key, v text)", on=[])
        chain.root.execute(f"insert into {name} values (1, 'a')")
    chain.catch_up()
    stops.at = {"copy.catch_up"}
    with chain["n2"].session() as session:
        add_table(session, AddTable(tables=[f"public.{name}" for name in tables], **options))
    chain.work_until(lambda: set(chain.states("n2").values()) == {"catching-up"})
    chain["n2"].close()
    chain["n2"].renew()
    return chain


def in_sync(chain: Chain) -> None:
    chain.work_until(lambda: set(chain.states("n2").values()) == {"ok"})
    chain.catch_up()


def test_marks_and_ticks_of_copies_are_written_and_forgotten(
    make_chain: MakeChain, stops: Stops
) -> None:
    chain = copied(make_chain, stops, "t", "u")
    low = chain["n2"].db
    marks = {row[0] for row in low.query("select mark from vedur.copy_progress")}
    assert len(marks) == 1 and None not in marks
    assert {row[0] for row in chain.root.query("select mark from vedur.copy_mark")} == marks
    # one of the two goes alone
    chain.root.execute("update t set v = 'b'")
    stops.at = {"copy.ok", "copy.ok_together"}
    chain.work_until(lambda: set(chain.states("n2").values()) == {"ok"})
    text = (
        "select consumer_name, p.tick_id - s.last_tick_id from vedur.position p"
        " join pgq_node.local_state s using (consumer_name) where consumer_name ~ 'copy'"
    )
    consumers = {f"public.{name}": f"n2_job.copy.public.{name}" for name in "tu"}
    assert dict(low.query(text)) == dict.fromkeys(consumers.values(), 0)
    chain["n2"].close()
    chain["n2"].renew()
    look = look_at_source(low, chain.root, QUEUE, consumers)
    assert (look.believed, look.faults) == (set(consumers), {})
    for change, faults in (
        ("update pgq.tick set tick_time = tick_time + '1 s'", 2),
        ("delete from pgq.tick where tick_id > 1", 0),  # it may come, and be another one
    ):
        with pytest.raises(VedurError, match="undo"), chain.root.transaction():
            chain.root.execute(change)
            look = look_at_source(low, chain.root, QUEUE, consumers)
            raise VedurError("undo")
        assert (look.believed, len(look.faults)) == (set(), faults)
    stops.at = set()
    left = "select count(*) from vedur.position where consumer_name ~ 'copy'"
    chain.work_until(lambda: low.value(left) == 0)
    chain.require_same("t")


def test_a_source_that_keeps_no_marks_any_more(
    make_chain: MakeChain, stops: Stops, caplog: pytest.LogCaptureFixture
) -> None:
    """It went back to before it had them; copies from it have no marks from then on."""
    chain = copied(make_chain, stops, "t")
    chain.root.execute("drop function vedur.get_copy_mark, vedur.mark_copies")
    stops.at = set()
    in_sync(chain)
    chain.require_same("t")
    assert len(warnings(caplog, "does not have what the copy marked there")) == 1
    assert chain["n2"].db.value("select mark from vedur.copy_progress") is None


def test_a_copy_that_cannot_begin_anew_says_so(make_chain: MakeChain, stops: Stops) -> None:
    chain = copied(make_chain, stops, "t", skip_truncate=True)
    chain.root.execute("delete from vedur.copy_mark")
    stops.at = set()
    low = chain["n2"].db
    error = "select error from vedur.copy_progress"
    chain.work_until(lambda: "set back" in (low.value(error) or ""))
    assert "(--skip-truncate) and cannot begin anew" in low.value(error)
    assert chain.states("n2") == {"public.t": "catching-up"}
    assert low.query("select * from t") == [(1, "a")]


def test_a_table_in_sync_whose_snapshot_the_provider_cannot_have_given(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    """As Londiste leaves tables; its root has lost what the copy saw."""
    chain = make_chain(2)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.table("public.u", "create table u (id int primary key, v text)")
    chain.catch_up()
    low = chain["n2"]
    here = chain.root.value("select txid_snapshot_xmax(txid_current_snapshot())")
    far = "update londiste.table_info set custom_snapshot = %s where table_name = %s"
    low.db.execute(far, [f"{here}:{here + 1000}:", "public.t"])
    low.db.execute(far, [f"{here}:{here}:", "public.u"])
    low.close()
    low.renew()
    chain.root.execute("insert into t values (1, 'new'); insert into u values (1, 'new')")
    chain.work_until(lambda: bool(warnings(caplog, "the table is copied anew")))
    in_sync(chain)
    chain.require_same("t")
    chain.require_same("u")
    said = warnings(caplog, "the table is copied anew")
    assert len(said) == 1 and said[0].startswith("public.t: transaction numbers of provider")


def test_a_copy_that_ends_behind_its_mark_begins_anew(make_chain: MakeChain, stops: Stops) -> None:
    chain = make_chain(2)
    chain.table("public.t", "create table t (id int primary key, v text)", on=[])
    chain.root.execute("insert into t values (1, 'a')")
    stops.at = {"copy.marked"}
    with chain["n2"].session() as session:
        add_table(session, AddTable(tables=["public.t"]))
    marks = "select mark from vedur.copy_mark"
    chain.work_until(lambda: len(chain.root.query(marks)) > 0)
    chain["n2"].close()
    first = {row[0] for row in chain.root.query(marks)}
    chain["n2"].renew()
    stops.at = set()
    in_sync(chain)
    chain.require_same("t")
    used = chain["n2"].db.value("select mark from vedur.copy_progress")
    assert used is not None and used not in first
    assert used in {row[0] for row in chain.root.query(marks)}
