"""Operators' actions against two real servers of different versions, without workers.

What a worker would answer (a tick applied, a pause accepted) is written by hand through the
contract's functions, so that each action is tested alone. The same set of tests runs on our own
SQL and, where it is installed, on upstream's.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import Servers, TestServer
from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db.conninfo import with_params
from vedur.db.install import install
from vedur.errors import (
    ConnectError,
    PrivilegeError,
    RefusedError,
    StateError,
    UsageError,
    VedurError,
)
from vedur.names import parse_name
from vedur.node.info import NodeType, get_node_info, get_queue_locations
from vedur.node.position import set_consumer_completed
from vedur.node.state import set_consumer_error, set_consumer_uptodate
from vedur.ops import check as check_op
from vedur.ops import show
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_provider import change_provider
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.doctor.server import check_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.execute.plan import plan_execute
from vedur.ops.execute.run import execute
from vedur.ops.pause import pause, resume
from vedur.ops.remove_table import remove_table
from vedur.ops.resync import resync
from vedur.ops.sequences import add_seq, remove_seq
from vedur.ops.session import Session
from vedur.ops.wait_sync import wait_provider, wait_root, wait_sync
from vedur.status.snapshot import ConsumerError, read_node
from vedur.tables.structure import foreign_keys, read_structure
from vedur.worker.loop import Worker

QUEUE = "replika"

TABLES = """
create schema s;
create table s.a (id int primary key, t text);
create table s.b (id serial primary key, a int references s.a (id), x numeric default 1.5);
create index b_x on s.b (x);
create table s.nopk (x int);
"""

MakeOn = Callable[..., vdb.Database]


@dataclasses.dataclass
class Lab:
    """A root and a place for a leaf, each with its session."""

    root_db: vdb.Database
    leaf_db: vdb.Database
    log: pytest.LogCaptureFixture
    root: Session
    leaf: Session

    def lines(self) -> list[str]:
        """INFO and above since the last call, as `LEVEL text`."""
        found = [
            f"{record.levelname} {record.getMessage()}"
            for record in self.log.records
            if record.levelno >= logging.INFO
        ]
        self.log.clear()
        return found

    def create_nodes(self) -> None:
        node = plan_node(self.root, NodeType.ROOT, "src", self.root_db.connstr)
        create_node(self.root, node)
        node = plan_node(
            self.leaf, NodeType.LEAF, "dst", self.leaf_db.connstr, self.root_db.connstr
        )
        create_node(self.leaf, node)
        self.log.clear()

    def add_both(self, *tables: str) -> None:
        add_table(self.root, AddTable(tables=tables))
        add_table(self.leaf, AddTable(tables=tables))
        self.log.clear()

    def tick(self) -> int:
        """What the ticker does when it is asked to."""
        self.root_db.value("select pgq.force_tick(%s)", [QUEUE])
        return int(self.root_db.value("select pgq.ticker(%s)", [QUEUE]))


def settings(name: str, connstr: str) -> LondisteSettings:
    return LondisteSettings(db=connstr, queue_name=QUEUE, job_name=name, config_file=f"/{name}.ini")


@pytest.fixture(params=["ours", "upstream"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(
    kind: str,
    servers: Servers,
    oldest: TestServer,
    newest: TestServer,
    make_db_on: MakeOn,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Lab]:
    caplog.set_level(logging.INFO, "vedur")
    first, second = (oldest, newest) if kind == "ours" else (servers.get(15),) * 2
    bare = "bare" if kind == "ours" else kind
    root_db = make_db_on(first, bare, autocommit=True)
    leaf_db = make_db_on(second, bare, autocommit=True)
    for db in (root_db, leaf_db):
        db.execute(TABLES)
    with (
        Session(settings("src", root_db.connstr)) as root,
        Session(settings("dst", leaf_db.connstr)) as leaf,
    ):
        yield Lab(root_db, leaf_db, caplog, root, leaf)


def test_create_root_and_leaf(lab: Lab, kind: str) -> None:
    create_node(lab.root, plan_node(lab.root, NodeType.ROOT, "src", lab.root_db.connstr))
    lines = lab.lines()
    assert lines[0] == "INFO plpgsql is installed"
    assert ("INFO Installing londiste" in lines) == (kind == "ours")
    assert lines[-4:] == [
        "INFO Initializing node",
        "INFO Location registered",
        'INFO Node "src" initialized for queue "replika" with type "root"',
        "INFO Done",
    ]
    leaf = plan_node(lab.leaf, NodeType.LEAF, "dst", lab.leaf_db.connstr, lab.root_db.connstr)
    create_node(lab.leaf, leaf)
    assert lab.lines()[-8:] == [
        "INFO Initializing node",
        "INFO Location registered",
        "INFO Location registered",
        "INFO Subscriber registered: dst",
        "INFO Location registered",
        "INFO Location registered",
        'INFO Node "dst" initialized for queue "replika" with type "leaf"',
        "INFO Done",
    ]
    create_node(lab.leaf, leaf)
    assert lab.lines()[-1] == "INFO Node is already initialized as leaf"
    for db in (lab.root_db, lab.leaf_db):
        found = {m.node_name: m.node_location for m in get_queue_locations(db, QUEUE)}
        assert found == {"src": lab.root_db.connstr, "dst": lab.leaf_db.connstr}


def test_create_leaf_says_what_is_wrong(lab: Lab) -> None:
    with pytest.raises(UsageError, match="Please specify --provider"):
        plan_node(lab.leaf, NodeType.LEAF, "dst", lab.leaf_db.connstr)
    with pytest.raises(UsageError, match="Node name must be given either"):
        plan_node(lab.leaf, NodeType.ROOT, None, None)
    node = plan_node(lab.leaf, NodeType.LEAF, "dst", lab.leaf_db.connstr, lab.root_db.connstr)
    with pytest.raises(StateError, match="Root node not initialized"):
        create_node(lab.leaf, node)
    nowhere = plan_node(
        lab.leaf, NodeType.LEAF, "dst", lab.leaf_db.connstr, "host=127.0.0.1 port=1 dbname=x"
    )
    with pytest.raises(ConnectError):
        create_node(lab.leaf, nowhere)
    other = plan_node(lab.root, NodeType.ROOT, "src", lab.leaf_db.connstr)
    with pytest.raises(StateError, match="points to different database"):
        create_node(lab.root, other)
    lab.create_nodes()
    taken = plan_node(
        Session(settings("x", lab.leaf_db.connstr)),
        NodeType.LEAF,
        "src",
        lab.leaf_db.connstr,
        lab.root_db.connstr,
    )
    lab.leaf_db.execute("select pgq_node.drop_node('replika', 'dst')")
    with pytest.raises(StateError, match="Node 'src' already exists"):
        create_node(lab.leaf, taken)


def test_a_failed_creation_can_be_repeated(lab: Lab) -> None:
    create_node(lab.root, plan_node(lab.root, NodeType.ROOT, "src", lab.root_db.connstr))
    node = plan_node(lab.leaf, NodeType.LEAF, "dst", lab.leaf_db.connstr, lab.root_db.connstr)
    # the root learns of the node, then its own registration fails
    install(lab.leaf_db)
    lab.leaf_db.execute(
        "create function no() returns trigger language plpgsql as $$ begin raise 'no'; end $$;"
        "create trigger no before insert on pgq_node.node_info execute function no()"
    )
    with pytest.raises(VedurError, match="no"):
        create_node(lab.leaf, node)
    lab.leaf_db.execute("drop trigger no on pgq_node.node_info")
    assert get_node_info(lab.leaf_db, QUEUE) is None
    assert lab.root_db.query("select * from pgq_node.get_subscriber_info(%s)", [QUEUE]) == []
    create_node(lab.leaf, node)
    assert get_node_info(lab.leaf_db, QUEUE) is not None


def test_no_node_is_one_clear_sentence(lab: Lab) -> None:
    with pytest.raises(StateError, match='run "create-root" or "create-leaf" first'):
        show.tables(lab.root)


def test_add_table_root_then_leaf(lab: Lab) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a", "s.b"]))
    assert lab.lines() == ["INFO Table added: s.a", "INFO Table added: s.b"]
    with pytest.raises(RefusedError, match=r"^Primary key missing on table: s\.nopk$"):
        add_table(lab.root, AddTable(tables=["s.nopk"]))
    lab.log.clear()
    add_table(lab.leaf, AddTable(tables=["s.*"]))
    assert lab.lines() == ["INFO Table added: s.a", "INFO Table added: s.b"]
    add_table(lab.leaf, AddTable(tables=["s.a"]))
    assert lab.lines() == ["INFO s.a already processed"]
    assert [(t.table_name, t.merge_state) for t in show.tables(lab.root)] == [
        ("s.a", "ok"),
        ("s.b", "ok"),
    ]
    assert [(t.table_name, t.merge_state) for t in show.tables(lab.leaf)] == [
        ("s.a", None),
        ("s.b", None),
    ]
    names = lab.leaf_db.query(
        "select tgname from pg_trigger where tgrelid = 's.a'::regclass and not tgisinternal"
        " order by 1"
    )
    assert [row.tgname for row in names] == ["_londiste_replika", "_londiste_replika_truncate"]


def test_add_table_refuses_clearly(lab: Lab) -> None:
    lab.create_nodes()
    with pytest.raises(UsageError, match="Cannot proceed"):
        add_table(lab.root, AddTable(tables=["zz"]))
    assert lab.lines() == ["WARNING public.zz not available"]
    with pytest.raises(UsageError, match="Cannot proceed"):
        add_table(lab.leaf, AddTable(tables=["s.a"]))
    lab.log.clear()
    add_table(lab.root, AddTable(tables=["zz", "s.a"], skip_non_existing=True))
    assert lab.lines() == ["WARNING public.zz not available", "INFO Table added: s.a"]
    lab.leaf_db.execute("drop table s.b, s.a")
    with pytest.raises(RefusedError, match="Table does not exist"):
        add_table(lab.leaf, AddTable(tables=["s.a"]))


def test_add_table_gives_up_on_a_locked_table(lab: Lab) -> None:
    lab.create_nodes()
    quick = dataclasses.replace(lab.root.settings, lock_timeout=0.3)
    with (
        vdb.connect(lab.root_db.connstr) as holder,
        Session(quick) as session,
        pytest.raises(VedurError, match="timeout"),
    ):
        holder.execute("lock table s.a in access exclusive mode")
        add_table(session, AddTable(tables=["s.a"]))
    assert show.tables(lab.root) == []


def test_add_table_with_other_name_condition_and_creation(lab: Lab) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a", "s.b"]))
    wish = AddTable(
        tables=["s.b"],
        dest_table="s2.bb",
        copy_condition="id < 1000",
        create_full=True,
        max_parallel_copy=3,
    )
    lab.log.clear()
    add_table(lab.leaf, wish)
    assert lab.lines() == ["INFO Table added: s.b(s2.bb)"]
    (table,) = show.tables(lab.leaf)
    assert (table.dest_table, table.copy_condition) == ("s2.bb", "id < 1000")
    assert table.attrs == {"copy_condition": "id < 1000", "max_parallel_copy": "3"}
    made = read_structure(lab.leaf_db, parse_name("s2.bb"))
    want = read_structure(lab.root_db, parse_name("s.b"))
    assert made and want
    assert [dataclasses.replace(c) for c in made.columns] == list(want.columns)
    assert made.key == ("id",)
    assert [index.name for index in made.indexes] == ["bb_x"] or len(made.indexes) == 1
    assert [f.differences for f in check_op.check(lab.leaf)] == [()]


def test_create_says_what_this_node_lacks(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(
        "create type s.mood as enum ('good'); create table s.t (id int primary key, m s.mood)"
    )
    add_table(lab.root, AddTable(tables=["s.t"]))
    with pytest.raises(StateError, match=r's\.mood" does not exist: bring types.*pg_dump'):
        add_table(lab.leaf, AddTable(tables=["s.t"], create=True))
    assert lab.leaf_db.value("select to_regclass('s.t')") is None


def test_create_full_brings_foreign_keys_when_both_tables_are_in_sync(lab: Lab) -> None:
    lab.create_nodes()
    lab.leaf_db.execute("drop schema s cascade")
    add_table(lab.root, AddTable(tables=["s.a", "s.b"]))
    add_table(lab.leaf, AddTable(tables=["s.b"], create_full=True))
    assert check_op.fkeys(lab.leaf) == []
    add_table(lab.leaf, AddTable(tables=["s.a"], dest_table="s.a2", create_full=True))
    (key,) = check_op.fkeys(lab.leaf)
    assert (key.from_table, key.to_table) == ("s.b", "s.a2")
    ready = "select fkey_name from londiste.get_valid_pending_fkeys('replika')"
    assert lab.leaf_db.query(ready) == []
    lab.leaf_db.execute("update londiste.table_info set merge_state = 'ok'")
    assert [row.fkey_name for row in lab.leaf_db.query(ready)] == ["b_a_fkey"]
    lab.leaf_db.execute("select londiste.restore_table_fkey('s.b', 'b_a_fkey')")
    (made,) = foreign_keys(lab.leaf_db, ["s.b"])
    assert (made.to_table, made.fkey_name) == ("s.a2", "b_a_fkey")


def test_create_makes_columns_and_key(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(
        """
        create table s."Odd Name" (
            "Key" bigint generated by default as identity primary key,
            "a b" text collate "C" default 'x%y',
            twice bigint generated always as ("Key" * 2) stored,
            arr int[] not null default '{}',
            at timestamptz default now(),
            check (arr is not null));
        """
    )
    add_table(lab.root, AddTable(tables=["s.Odd Name"]))
    add_table(lab.leaf, AddTable(tables=["s.Odd Name"], create=True))
    made = read_structure(lab.leaf_db, parse_name("s.Odd Name"))
    want = read_structure(lab.root_db, parse_name("s.Odd Name"))
    assert made and want
    assert (made.columns, made.key) == (want.columns, want.key)
    assert [c.kind for c in made.constraints] == ["p"]


def test_remove_table(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a", "s.b")
    add_seq(lab.root, ["s.b_id_seq"])
    add_seq(lab.leaf, ["s.b_id_seq"])
    lab.log.clear()
    remove_table(lab.leaf, ["s.b"])
    assert lab.lines() == ["INFO Table removed: s.b"]
    assert [(seq.seq_name, seq.local) for seq in show.seqs(lab.leaf)] == [("s.b_id_seq", False)]
    assert [t.table_name for t in show.tables(lab.leaf)] == ["s.a"]
    assert show.missing(lab.leaf) == [("S", "s.b_id_seq"), ("r", "s.b")]
    with pytest.raises(UsageError, match="Cannot proceed"):
        remove_table(lab.leaf, ["s.b"])
    remove_table(lab.leaf, [], everything=True)
    assert show.tables(lab.leaf) == []


def test_sequences(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute("select setval('s.b_id_seq', 4366741)")
    add_seq(lab.root, ["s.b_id_seq"])
    lab.leaf_db.execute("alter sequence s.b_id_seq owned by none; drop table s.b")
    lab.leaf_db.execute("drop sequence s.b_id_seq")
    with pytest.raises(StateError, match=r"Sequence 's\.b_id_seq' missing on local node"):
        add_seq(lab.leaf, ["s.b_id_seq"])
    lab.log.clear()
    add_seq(lab.leaf, ["s.b_id_seq"], create=True)
    assert lab.lines() == ["INFO Sequence added: s.b_id_seq"]
    for session in (lab.root, lab.leaf):
        (seq,) = show.seqs(session)
        assert (seq.seq_name, seq.local, seq.last_value) == ("s.b_id_seq", True, 4396741)
    with pytest.raises(UsageError, match="Cannot proceed"):
        add_seq(lab.leaf, ["s.none"])
    lab.log.clear()
    remove_seq(lab.leaf, [], everything=True)
    assert lab.lines() == ["INFO Sequence removed: s.b_id_seq"]
    assert [(seq.seq_name, seq.local) for seq in show.seqs(lab.leaf)] == [("s.b_id_seq", False)]


def test_missing_lists_what_is_left(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a")
    add_seq(lab.root, ["s.b_id_seq"])
    assert sorted(show.missing(lab.root)) == [("r", "s.b"), ("r", "s.nopk")]


def test_resync(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a")
    lab.leaf_db.execute("select londiste.local_set_table_state('replika', 's.a', null, 'ok')")
    resync(lab.leaf, ["s.a"])
    assert lab.lines() == ["INFO Table s.a state set to NULL"]
    assert show.tables(lab.leaf)[0].merge_state is None
    with pytest.raises(StateError, match="nothing to copy from"):
        resync(lab.root, ["s.a"])


def test_tables_to_copy_call_the_worker(lab: Lab) -> None:
    """Once for all tables, through the channel on which it waits for ticks."""
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a", "s.b"]))
    tick = lab.tick()
    with vdb.connect(lab.root_db.connstr, autocommit=True) as listener:
        listener.execute("listen pgq_tick")

        def heard() -> list[str]:
            lab.root_db.execute("select pg_notify('pgq_tick', 'end')")
            found: list[str] = []
            while "end" not in found:
                found += [said.payload for said in listener.notifications(1.0)]
            return found[:-1]

        add_table(lab.leaf, AddTable(tables=["s.a", "s.b"]))
        assert heard() == [f"{QUEUE}:{tick}"]
        add_table(lab.leaf, AddTable(tables=["s.a"]))
        assert heard() == []
        resync(lab.leaf, ["s.a"])
        assert heard() == [f"{QUEUE}:{tick}"]


def test_status_members_and_node_info(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a")
    lab.root_db.execute(
        "update pgq_node.node_location set node_location = node_location || ' password=sekrit'"
    )
    set_consumer_error(lab.leaf_db, QUEUE, "dst", "first line\nsecond line")
    found = show.status(lab.root)
    assert {node.name: node.type for node in found.nodes} == {"src": "root", "dst": "leaf"}
    leaf = next(node for node in found.nodes if node.name == "dst")
    assert (leaf.tables_ok, leaf.tables_half, leaf.tables_ignored) == (0, 1, 0)
    assert leaf.errors == (ConsumerError("dst", "first line"),)
    assert leaf.lag is not None and leaf.lag < 60
    assert leaf.provider == "src"
    _, members = show.members(lab.root)
    assert [m.node_name for m in members] == ["dst", "src"]
    assert all("sekrit" not in m.node_location for m in members)
    details = show.node_info(lab.leaf)
    assert (details.info.node_name, details.info.provider_node) == ("dst", "src")
    place = show.node_status(lab.root)
    assert place.subscribers == ("dst",)


def test_status_shows_a_node_that_cannot_be_reached(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(
        "update pgq_node.node_location set node_location = 'host=127.0.0.1 port=1 dbname=x'"
        " where node_name = 'dst'"
    )
    found = show.status(lab.root)
    leaf = next(node for node in found.nodes if node.name == "dst")
    assert leaf.type == "unreachable"  # dead is what an operator has tagged
    assert leaf.failure and "refused" in leaf.failure
    (line,) = lab.lines()
    assert line.startswith("WARNING Node 'dst' failure: ")
    tagged = show.status(lab.root, ["dst"])
    dead = next(n for n in tagged.nodes if n.name == "dst")
    assert (dead.type, dead.failure) == ("dead", "tagged as dead")


class Meanwhile(threading.Thread):
    """Plays the worker: repeats a step until the test is done with it."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.step, self.over = step, threading.Event()

    def run(self) -> None:
        while not SYSTEM.wait(self.over, 0.1):
            self.step()

    def __enter__(self) -> Meanwhile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join(120)


def test_pause_and_resume_wait_for_the_worker(lab: Lab) -> None:
    lab.create_nodes()
    with Meanwhile(lambda: _accept(lab)):
        pause(lab.leaf)
        assert [line for line in lab.lines() if "uptodate" not in line] == [
            "INFO Consumer dst tagged as paused",
            "INFO Waiting for worker to accept",
            "INFO Consumer 'dst' on node 'dst' paused",
        ]
        info = get_node_info(lab.root_db, QUEUE)
        assert info and not info.worker_paused
        resume(lab.root, node="dst")
    said = [
        line for line in lab.lines() if "uptodate" not in line
    ]  # the worker says it at any time
    assert said[-1] == "INFO Consumer 'dst' on node 'dst' resumed"
    assert show.node_info(lab.leaf).info.worker_paused is False
    with pytest.raises(VedurError, match="nobody"):
        pause(lab.leaf, consumer="nobody")


def _accept(lab: Lab) -> None:
    set_consumer_uptodate(lab.leaf_db, QUEUE, "dst", True)


def test_wait_root_and_provider(lab: Lab) -> None:
    lab.create_nodes()
    with Meanwhile(lambda: set_tick(lab)):
        wait_root(lab.leaf)
        wait_provider(lab.leaf)
    lines = [line for line in lab.lines() if "tick" in line]
    assert lines[:2] == ["INFO Fetching last tick for src", "INFO Waiting for tick > 2"]
    assert lines[2].startswith("INFO Got tick ")
    wait_root(lab.root)
    assert lab.lines() == ["INFO Current node is root, no need to wait"]


def set_tick(lab: Lab) -> None:
    with vdb.connect(lab.leaf_db.connstr, autocommit=True) as db:
        set_consumer_completed(db, QUEUE, "dst", lab.tick())


def test_wait_sync(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a", "s.b")

    def copy_done() -> None:
        with vdb.connect(lab.leaf_db.connstr, autocommit=True) as db:
            db.execute("update londiste.table_info set merge_state = 'ok'")

    with Meanwhile(copy_done):
        wait_sync(lab.leaf)
    assert lab.lines() == [
        "INFO Waiting until all tables are in sync",
        "INFO 2/2 table(s) to copy",
        "INFO s.a: finished (2/2)",
        "INFO s.b: finished (2/2)",
        "INFO All done",
    ]


def test_drop_node(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a")
    with pytest.raises(StateError, match="Unknown node: nobody"):
        drop_node(lab.root, "nobody")
    with pytest.raises(StateError, match="node still has subscribers: dst"):
        drop_node(lab.root, "src")
    lab.log.clear()
    drop_node(lab.root, "dst")
    assert lab.lines()[-1] == "INFO Node dropped: dst"
    assert get_node_info(lab.leaf_db, QUEUE) is None
    assert [m.node_name for m in get_queue_locations(lab.root_db, QUEUE)] == ["src"]
    consumers = lab.root_db.query("select consumer_name from pgq.get_consumer_info(%s)", [QUEUE])
    assert [row.consumer_name for row in consumers if "dst" in row.consumer_name] == []
    drop_node(lab.root, "src")
    assert get_node_info(lab.root_db, QUEUE) is None


def test_drop_node_that_is_gone(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(
        "update pgq_node.node_location set node_location = 'host=127.0.0.1 port=1 dbname=x'"
        " where node_name = 'dst'"
    )
    drop_node(lab.root, "dst")
    assert [m.node_name for m in get_queue_locations(lab.root_db, QUEUE)] == ["src"]
    assert lab.lines()[-1] == "INFO Node dropped: dst"


def make_branch(lab: Lab, mid_db: vdb.Database, installed: bool) -> None:
    """A branch below the root as Londiste makes one; with our schema beside it, or without."""
    if installed:
        install(mid_db)
    for db in (lab.root_db, lab.leaf_db, mid_db):
        for name, place in (("src", lab.root_db), ("dst", lab.leaf_db), ("mid", mid_db)):
            args = [QUEUE, name, place.connstr]
            db.execute("select pgq_node.register_location(%s, %s, %s, false)", args)
    register = "select pgq_node.register_subscriber(%s, 'mid', 'mid', null)"
    lab.root_db.execute(register, [QUEUE])
    create = "select pgq_node.create_node(%s, 'branch', 'mid', 'mid', 'src', 1, null)"
    mid_db.execute(create, [QUEUE])


def test_a_branch_whose_sql_passes_nothing_on_is_refused(
    lab: Lab, make_db_on: MakeOn, newest: TestServer, kind: str, servers: Servers
) -> None:
    """An earlier version applied events on a branch and kept them for itself."""
    lab.create_nodes()
    server = newest if kind == "ours" else servers.get(15)
    mid_db = make_db_on(server, "bare" if kind == "ours" else kind, autocommit=True)
    with Session(settings("mid", mid_db.connstr)) as mid:
        node = plan_node(mid, NodeType.BRANCH, "mid", mid_db.connstr, lab.root_db.connstr)
        merging = plan_node(
            mid, NodeType.LEAF, "mid", mid_db.connstr, lab.root_db.connstr, combined="q2"
        )
        with pytest.raises(StateError, match='this database is no node of queue "q2"'):
            create_node(mid, merging)
        assert not mid_db.value("select to_regclass('vedur.component')")  # nothing was written
        assert {m.node_name for m in get_queue_locations(lab.root_db, QUEUE)} == {"dst", "src"}
        make_branch(lab, mid_db, installed=True)
        mid_db.execute(
            "drop function vedur.publish(text, integer, bigint[], bigint, bigint[], timestamptz[],"
            " bigint[], text[], bigint)"
        )
        with pytest.raises(StateError, match='SQL of branch "mid" is of a version that passes no'):
            change_provider(lab.leaf, "mid")
        info = get_node_info(lab.leaf_db, QUEUE)
        assert info and not info.worker_paused
        below = dataclasses.replace(info, provider_node="mid", provider_location=mid_db.connstr)
        found = [f.found for f in check_provider(mid, below) if f.verdict == "fail"]
        assert any("passes no events on" in text for text in found)
        worker = Worker(mid.settings, make_runner=lambda provider, state: pytest.fail("it works"))
        worker.on_alive = lambda: pytest.fail("it lives")
        with pytest.raises(StateError, match=r"cannot pass events on: nothing is applied"):
            worker.run()
        assert "cannot pass events on" in str(read_node(mid_db, QUEUE, "mid").errors)
        other_db = make_db_on(server, "bare" if kind == "ours" else kind, autocommit=True)
        with Session(settings("low", other_db.connstr)) as low:
            lower = plan_node(low, NodeType.LEAF, "low", other_db.connstr, mid_db.connstr)
            with pytest.raises(StateError, match="passes no events on"):
                create_node(low, lower)
        assert "low" not in [m.node_name for m in get_queue_locations(lab.root_db, QUEUE)]
        mid_db.execute("update vedur.component set digest = 'of an older version'")
        lab.log.clear()
        create_node(mid, node)  # brings its SQL up to date, which is all that it does
        assert "Node is already initialized as branch" in lab.lines()[-1]
        assert mid_db.value("select count(*) from pg_proc where proname = 'publish'") == 1


def test_a_branch_of_londistes_own_worker_is_a_provider(
    lab: Lab, make_db_on: MakeOn, kind: str, servers: Servers
) -> None:
    if kind == "ours":
        pytest.skip("about upstream's SQL")
    lab.create_nodes()
    mid_db = make_db_on(servers.get(15), kind, autocommit=True)
    make_branch(lab, mid_db, installed=False)
    with pytest.raises(StateError, match="cannot subscribe to itself"):
        change_provider(lab.leaf, "dst")
    with pytest.raises(StateError, match="has already 'src' as provider"):
        change_provider(lab.leaf, "src")
    # nor is there a worker that brings the branch to the leaf's tick
    here = lab.leaf_db.value("select last_tick_id from pgq_node.local_state")
    mid_db.execute("select pgq.ticker('replika', %s, now(), 1)", [here])
    with Meanwhile(lambda: _accept(lab)):
        change_provider(lab.leaf, "mid")
    moved = get_node_info(lab.leaf_db, QUEUE)
    assert moved and moved.provider_node == "mid"
    subscribers = "select node_name from pgq_node.get_subscriber_info('replika') order by 1"
    assert [row.node_name for row in lab.root_db.query(subscribers)] == ["mid"]
    assert [row.node_name for row in mid_db.query(subscribers)] == ["dst"]
    low_db = make_db_on(servers.get(15), kind, autocommit=True)
    with Session(settings("low", low_db.connstr)) as low:
        node = plan_node(low, NodeType.LEAF, "low", low_db.connstr, mid_db.connstr)
        create_node(low, node)
    assert [row.node_name for row in mid_db.query(subscribers)] == ["dst", "low"]


def script(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_execute_on_the_root(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a"]))
    path = script(
        tmp_path,
        "add_column.sql",
        "begin;\nalter table s.a add column c1 int;\ninsert into s.a values (1, 'x%s', 2);\nend;\n",
    )
    lab.log.clear()
    execute(lab.root, [path])
    assert lab.lines() == [
        "INFO Executing: add_column.sql",
        "INFO Execute finished: add_column.sql",
    ]
    assert [tuple(row) for row in lab.root_db.query("select * from s.a")] == [(1, "x%s", 2)]
    # role local: the insert made no event of its own, the script is the event
    lab.tick()
    types = [row.ev_type for row in lab.root_db.query("select ev_type from pgq.event_1")]
    assert "EXECUTE" in types
    assert not [t for t in types if t.startswith(("I", "{"))]
    text = lab.root_db.value("select ev_data from pgq.event_1 where ev_type = 'EXECUTE'")
    assert "begin" not in text and "add column c1" in text
    execute(lab.root, [path])
    assert lab.lines() == ['INFO EXECUTE: "add_column.sql" already applied, skipping']
    with pytest.raises(RefusedError, match=r"^Node is not root node: replika$") as caught:
        execute(lab.leaf, [path])
    assert caught.value.exit_code == 1


def test_execute_is_all_or_nothing(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    path = script(
        tmp_path, "x.sql", "begin; create table s.new (id int); commit; alter table s.zz add c int;"
    )
    with pytest.raises(VedurError, match=r"s\.zz"):
        execute(lab.root, [path])
    assert lab.root_db.value("select to_regclass('s.new')") is None
    assert lab.root_db.query("select * from londiste.applied_execute") == []
    with pytest.raises(UsageError, match=r"vac\.sql: .*cannot be part of a script"):
        execute(lab.root, [script(tmp_path, "vac.sql", "vacuum s.a")])
    with pytest.raises(UsageError, match="cannot read script"):
        execute(lab.root, [str(tmp_path / "none.sql")])


def test_execute_honours_its_header(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a"]))
    lab.log.clear()
    here = "--*-- Local-Table: s.a\nalter table @s.a@ add column c2 int;\n"
    execute(lab.root, [script(tmp_path, "here.sql", here)])
    assert lab.root_db.query("select c2 from s.a") == []
    there = "--*-- Local-Table: s.b\nalter table @s.b@ add column c2 int;\n"
    lab.log.clear()
    execute(lab.root, [script(tmp_path, "there.sql", there)])
    assert "INFO there.sql: This SQL does not need to run on this node." in lab.lines()


def test_execute_dry_run_asks_every_node(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    lab.leaf_db.execute("create schema other; alter table s.a set schema other")
    lab.leaf_db.execute('alter table other.a rename to "A b"')
    add_table(lab.root, AddTable(tables=["s.a"]))
    add_table(lab.root, AddTable(tables=["s.b"]))
    add_table(lab.leaf, AddTable(tables=["s.a"], dest_table="other.A b"))
    text = "begin;\nalter table s.a add column c1 int;\ncreate table s.new (id int);\nend;\n"
    path = script(tmp_path, "add.sql", text)
    here = "--*-- Local-Table: s.b\nalter table @s.b@ add column c2 int;\n"
    part = "--*-- Local-Table: s.a, s.b\nalter table @s.b@ add column c3 int;\n"
    paths = [path, script(tmp_path, "b.sql", here), script(tmp_path, "part.sql", part)]
    plans = plan_execute(lab.root, paths)
    assert [(p.node, p.node_type, p.script) for p in plans] == [
        ("src", "root", "add.sql"),
        ("src", "root", "b.sql"),
        ("src", "root", "part.sql"),
        ("dst", "leaf", "add.sql"),
        ("dst", "leaf", "b.sql"),
        ("dst", "leaf", "part.sql"),
    ]
    assert plans[0].statements == (
        "alter table s.a add column c1 int",
        "create table s.new (id int)",
    )
    assert plans[1].statements[0].endswith('alter table "s"."b" add column c2 int')
    renamed, made = plans[3].statements
    assert '"A b"' in renamed and "s.a" not in renamed
    assert made == "create table s.new (id int)"
    assert (plans[4].note, plans[4].trouble) == (
        "This SQL does not need to run on this node.",
        False,
    )
    assert (plans[5].note, plans[5].trouble) == ("SQL only partially matches local setup", True)
    # nothing has run, nothing was written
    assert lab.root_db.query("select * from londiste.applied_execute") == []
    assert lab.root_db.value("select to_regclass('s.new')") is None
    # and what was shown is what the leaf can run
    lab.leaf_db.execute(renamed)
    execute(lab.root, [path])
    applied, *_ = plan_execute(lab.root, [path])
    assert (applied.note, applied.statements) == ("already applied, skipping", ())
    with pytest.raises(RefusedError, match=r"^Node is not root node: replika$"):
        plan_execute(lab.leaf, [path])


def test_execute_dry_run_warns_of_names_that_a_node_lacks(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    lab.root_db.execute("create schema extra; create index a_t on s.a (t)")
    lab.leaf_db.execute("create schema other; alter table s.a set schema other")
    add_table(lab.root, AddTable(tables=["s.a"]))
    add_table(lab.leaf, AddTable(tables=["s.a"], dest_table="other.a"))
    first = script(tmp_path, "1.sql", "create table s.new (id int)")
    text = "alter table s.new add c int; update s.a set t = a.t; alter index s.a_t rename to u;"
    second = script(tmp_path, "2.sql", text + "create table extra.x (i int)")
    plans = {(p.node, p.script): p for p in plan_execute(lab.root, [first, second])}
    assert {k: p.warnings for k, p in plans.items() if p.warnings} == {
        ("dst", "2.sql"): (
            '"s.a_t" does not exist here',
            'schema "extra" does not exist here',
        )
    }
    assert not any(p.trouble for p in plans.values())


def test_execute_dry_run_names_nodes_that_cannot_be_asked(lab: Lab, tmp_path: Path) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a"]))
    away = with_params(lab.leaf_db.connstr, port="1", password="secret77")
    lab.root_db.execute("select pgq_node.register_location('replika', 'away', %s, false)", [away])
    path = script(tmp_path, "add.sql", "alter table s.a add column c1 int")
    plans = {p.node: p for p in plan_execute(lab.root, [path])}
    assert plans["src"].statements and plans["dst"].statements
    assert plans["away"].trouble and plans["away"].statements == ()
    assert plans["away"].note and "secret77" not in plans["away"].note


def test_check_and_fkeys(lab: Lab) -> None:
    lab.create_nodes()
    lab.add_both("s.a", "s.b")
    assert [f.differences for f in check_op.check(lab.leaf)] == [(), ()]
    lab.leaf_db.execute("alter table s.a alter t type varchar(10), add extra int")
    (finding,) = check_op.check(lab.leaf, ["s.a"])
    assert finding.differences == (
        'column "t" is text on provider, character varying(10) here',
        'column "extra" (integer) is missing on provider',
    )
    with pytest.raises(StateError, match="the root has none"):
        check_op.check(lab.root)
    (key,) = check_op.fkeys(lab.leaf)
    assert (key.from_table, key.to_table, key.fkey_name) == ("s.b", "s.a", "b_a_fkey")
    # the printed DDL makes the same key again
    lab.leaf_db.execute("alter table s.b drop constraint b_a_fkey")
    lab.leaf_db.execute(key.fkey_def)
    assert foreign_keys(lab.leaf_db, ["s.b"]) == [key]
    # and one that a copy has put aside is still shown
    lab.leaf_db.execute("select londiste.drop_table_fkey('s.b', 'b_a_fkey')")
    assert [k.fkey_name for k in check_op.fkeys(lab.leaf)] == ["b_a_fkey"]


def test_plain_roles_are_enough(
    oldest: TestServer,
    newest: TestServer,
    make_db_on: MakeOn,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """The owner of the database does everything; only `execute` needs one right more."""
    caplog.set_level(logging.INFO, "vedur")
    role = f"plain_{tmp_path.name}".replace("-", "_")
    databases = []
    for server in (oldest, newest):
        db = make_db_on(server, "bare", autocommit=True)
        if not db.value("select 1 from pg_roles where rolname = %s", [role]):
            db.execute(f"create role {role} login")  # both may be the same server
        db.execute(f"alter database {db.value('select current_database()')} owner to {role}")
        owner = vdb.connect(with_params(db.connstr, user=role), autocommit=True)
        owner.execute(TABLES)
        databases.append((db, owner))
    (root_admin, root_db), (_, leaf_db) = databases
    try:
        with (
            Session(settings("src", root_db.connstr)) as root,
            Session(settings("dst", leaf_db.connstr)) as leaf,
        ):
            lab = Lab(root_db, leaf_db, caplog, root, leaf)
            lab.create_nodes()
            lab.add_both("s.a", "s.b")
            add_seq(root, ["s.b_id_seq"])
            add_seq(leaf, ["s.b_id_seq"])
            assert {node.type for node in show.status(leaf).nodes} == {"root", "leaf"}
            path = script(tmp_path, "plain.sql", "alter table s.a add column c1 int;")
            with pytest.raises(PrivilegeError, match="grant set on parameter"):
                execute(root, [path])
            root_admin.execute(f"grant set on parameter session_replication_role to {role}")
            execute(root, [path])
            assert root_db.query("select c1 from s.a") == []
            remove_table(leaf, ["s.b"])
            drop_node(root, "dst")
    finally:
        for admin, owner in databases:
            owner.close()
            admin.execute(f"reassign owned by {role} to current_user; drop owned by {role}")
        for admin, _ in databases:
            admin.execute(f"drop role if exists {role}")
