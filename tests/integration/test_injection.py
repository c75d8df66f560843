"""Names, options and settings are data wherever SQL is made with them, never SQL themselves.

Every hostile text goes through every door of the command line, of both ini files and of Spark's
format `pgq`; a table on each side must survive it, and what is refused is refused in one line. The
doors are read from the grammar, so that a new one without a case is noticed. A condition is SQL by
design, but it cannot end the statement that it is put into.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vedur import db as vdb
from vedur.catalog.tables import local_set_table_attrs
from vedur.cli import commands as grammar
from vedur.cli.grammar import GENERAL, Command, Grammar
from vedur.cli.main import main
from vedur.config import LondisteSettings, PgqdSettings, load_pgqd
from vedur.daemon import Signals
from vedur.errors import UsageError, VedurError
from vedur.names import quote_ident
from vedur.node.info import NodeType, get_node_info
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.drop_node import drop_node
from vedur.ops.sequences import add_seq
from vedur.ops.session import Session
from vedur.pipeline.copy import SparkLoader
from vedur.pipeline.replay.stage import SparkReplay
from vedur.pipeline.source.options import OPTIONS
from vedur.pipeline.source.reader import LimitedStreamReader, QueueSource
from vedur.tables.filter import written
from vedur.ticker.service import TickerService
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.context import CopySetup
from vedur.worker.first_copy.control import Copying
from vedur.worker.loop import Worker

DROP = "drop table canary"
HOSTILE = [
    f"x'; {DROP}; --",
    f'x"; {DROP}; --',
    f"x\\'; {DROP}; --",
    f"x$$; {DROP}; --",
    f"true); {DROP}; --",
    f"id > 0; {DROP}",
    f"id > 0) to stdout; {DROP}; copy (select 1",
    f"*/; {DROP}; /*",
    f"public.t; {DROP}; --",
    f"public.t'); {DROP}; --",
    f"%s %(x)s {{0}} {{x}}; {DROP}",
    f"x\n; {DROP};",
]
MakeDbOn = Callable[..., vdb.Database]


@dataclass
class Nodes:
    """A root and a leaf with a table each can offer, and the ini files of both."""

    root: vdb.Database
    leaf: vdb.Database
    place: Path
    fresh: vdb.Database  # no node is here yet

    def ini(self, node: vdb.Database, **keys: str) -> str:
        found = {"db": node.connstr, "queue_name": "q", "job_name": "job", **keys}
        path = self.place / "x.ini"
        lines = [f"{key} = {value.replace(chr(10), chr(10) + ' ')}" for key, value in found.items()]
        path.write_text("[londiste3]\n" + "\n".join(lines) + "\n")
        path.chmod(0o600)
        return str(path)

    def survived(self) -> bool:
        text = "select count(*) from pg_class where relname = 'canary'"
        return {db.value(text) for db in (self.root, self.leaf, self.fresh)} == {1}

    def words(self, command: list[str]) -> list[str]:
        """A command of the list below, without its marks."""
        marks = {
            "@root@": self.root.connstr,
            "@fresh@": self.fresh.connstr,
            "@tick@": str(self.root.value("select max(tick_id) from pgq.tick")),
        }
        for mark, value in marks.items():
            command = [word.replace(mark, value) for word in command]
        return command


@pytest.fixture(scope="module")
def nodes(servers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    from tests.fixtures.pg import VERSIONS

    hosts = [servers.get(min(VERSIONS)), servers.get(max(VERSIONS)), servers.get(max(VERSIONS))]
    names = [host.create_database(host.template()) for host in hosts]
    found = [
        vdb.connect(host.connstr(name), autocommit=True)
        for host, name in zip(hosts, names, strict=True)
    ]
    for db in found:
        db.execute("create table canary (x int); create table t (id int primary key, a text)")
        db.execute("create sequence s")
    made = Nodes(found[0], found[1], tmp_path_factory.mktemp("ini"), found[2])
    for db, name, kind in ((found[0], "root", NodeType.ROOT), (found[1], "leaf", NodeType.LEAF)):
        settings = LondisteSettings(db=db.connstr, queue_name="q", job_name=name)
        provider = None if kind is NodeType.ROOT else found[0].connstr
        with Session(settings) as session:
            create_node(session, plan_node(session, kind, name, db.connstr, provider))
            if kind is NodeType.ROOT:
                add_table(session, AddTable(tables=["t"]))
    found[0].call("pgq.force_tick", "q")  # a tick that the leaf does not have yet
    found[0].execute("select pgq.ticker('q')")
    yield made
    for db, host, name in zip(found, hosts, names, strict=True):
        db.close()
        host.drop_database(name)


#: {} is the hostile text; the first word is the side. "quarantine": the leaf, with an event in it.
COMMANDS = [
    ["root", "status", "--set=queue_name={}"],
    ["root", "status", "--set={}=x"],
    ["root", "create-root", "{}", "dbname=x"],
    ["root", "create-root", "n", "{}"],
    ["leaf", "create-leaf", "n", "dbname=x", "--provider={}"],
    ["leaf", "create-leaf", "n", "dbname=x", "--provider=dbname=x", "--merge={}"],
    ["fresh", "create-leaf", "{}", "@fresh@", "--provider=@root@"],
    ["fresh", "create-leaf", "n", "{}", "--provider=@root@", "--nocheck"],
    ["fresh", "create-leaf", "n", "@fresh@", "--provider=@root@", "--merge={}"],
    ["fresh", "create-branch", "{}", "@fresh@", "--provider=@root@"],
    ["fresh", "create-branch", "n", "{}", "--provider=@root@", "--nocheck"],
    ["fresh", "create-branch", "n", "@fresh@", "--provider={}"],
    ["fresh", "create-branch", "n", "@fresh@", "--provider=@root@", "--sync-watermark={}"],
    ["root", "drop-node", "{}"],
    ["root", "drop-node", "nobody", "--reparent", "--max-wait={}"],
    ["leaf", "takeover", "{}"],
    ["leaf", "takeover", "root", "--node={}"],
    ["leaf", "takeover", "root", "--dead={}"],
    ["leaf", "takeover", "root", "--max-lag={}"],
    ["leaf", "takeover", "root", "--timeout={}"],
    ["leaf", "switchover", "--check", "--node={}"],
    ["leaf", "switchover", "--check", "--dead={}"],
    ["leaf", "switchover", "--check", "--max-lag={}"],
    ["root", "tag-dead", "{}"],
    ["root", "tag-alive", "{}"],
    ["root", "rename-node", "{}", "n"],
    ["root", "rename-node", "nobody", "{}"],
    ["root", "pause", "--node={}"],
    ["root", "pause", "--consumer={}"],
    ["root", "pause", "--node=leaf", "--consumer={}"],
    ["root", "resume", "--node={}"],
    ["root", "resume", "--consumer={}"],
    ["leaf", "change-provider", "--provider={}"],
    ["root", "change-provider", "--provider=root", "--node={}"],
    ["root", "change-provider", "--provider=root", "--consumer={}"],
    ["leaf", "change-provider", "--provider=root", "--dead={}"],
    ["leaf", "change-provider", "--provider=nobody", "--max-wait={}"],
    ["leaf", "worker", "--set-tick={}"],
    ["root", "add-table", "{}"],
    ["root", "add-table", "t", "--trigger-arg={}"],
    ["root", "add-table", "t", "--trigger-flags={}"],
    ["leaf", "add-table", "{}"],
    ["leaf", "add-table", "{}*"],
    ["leaf", "add-table", "t", "--dest-table={}"],
    ["leaf", "add-table", "t", "--dest-table={}", "--create"],
    ["leaf", "add-table", "t", "--copy-condition={}"],
    ["leaf", "add-table", "t", "--copy-condition={}", "--force"],
    ["leaf", "add-table", "t", "--where={}"],
    ["leaf", "add-table", "t", "--part-column={}"],
    ["leaf", "add-table", "t", "--columns=id", "--part-column=a={}"],
    ["leaf", "add-table", "t", "--columns={}"],
    ["leaf", "add-table", "t", "--columns=id,a={}"],
    ["leaf", "add-table", "t", "--columns=id,a={}", "--create", "--dest-table=made"],
    ["leaf", "add-table", "t", "--handler={}"],
    ["leaf", "add-table", "t", "--handler=londiste", "--handler-arg={}"],
    ["leaf", "add-table", "t", "--transform={}"],
    ["leaf", "add-table", "t", "--handler=shard", "--handler-arg=hash_expr={}"],
    [
        "leaf",
        "add-table",
        "t",
        "--handler=shard",
        "--handler-arg=key=id",
        "--handler-arg=shard_nr={}",
        "--handler-arg=shard_count={}",
    ],
    ["leaf", "add-table", "t", "--handler=daily_field", "--handler-arg=part_field={}"],
    ["leaf", "add-table", "t", "--handler=daily_event", "--handler-arg=part_name={}"],
    ["leaf", "add-table", "t", "--handler=daily_event", "--handler-arg=part_func={}"],
    ["leaf", "add-table", "t", "--handler=daily_event", "--handler-arg=retention_period={}"],
    ["leaf", "add-table", "t", "--handler=londiste", "--handler-arg=encoding={}"],
    ["leaf", "add-table", "t", "--handler=applyfn", "--handler-arg=func_name={}"],
    [
        "leaf",
        "add-table",
        "t",
        "--handler=applyfn",
        "--handler-arg=func_name=pg_catalog.concat",
        "--handler-arg=func_conf={}",
    ],
    ["leaf", "add-table", "t", "--handler=multimaster", "--handler-arg=timefield={}"],
    ["leaf", "add-table", "t", "--handler=multimaster", "--handler-arg=func_name={}"],
    ["leaf", "change-handler", "{}", "--handler=nop"],
    ["leaf", "change-handler", "t", "--handler={}"],
    ["leaf", "change-handler", "t", "--handler=londiste", "--handler-arg={}"],
    ["leaf", "change-handler", "t", "--transform={}"],
    ["leaf", "change-handler", "t", "--handler=nop", "--dry-run", "--max-wait={}"],
    ["leaf", "add-table", "t", "--on-error={}"],
    ["leaf", "add-table", "t", "--max-parallel-copy={}"],
    ["leaf", "change-table", "{}", "--on-error=stop"],
    ["leaf", "change-table", "t", "--on-error={}"],
    ["leaf", "change-filter", "{}", "--all-rows"],
    ["leaf", "change-filter", "t", "--where={}"],
    ["leaf", "change-filter", "t", "--all-rows", "--max-wait={}"],
    ["leaf", "remove-table", "{}"],
    ["leaf", "resync", "{}"],
    ["root", "add-seq", "{}"],
    ["leaf", "remove-seq", "{}"],
    ["leaf", "check", "{}"],
    ["leaf", "fkeys", "{}"],
    ["leaf", "show-handlers", "{}"],
    ["leaf", "add-table", "t", "--copy-node={}"],
    ["leaf", "resync", "t", "--copy-node={}"],
    ["leaf", "compare", "t", "--node={}"],
    ["leaf", "repair", "t", "--node={}"],
    ["leaf", "compare", "{}"],
    ["leaf", "compare", "t", "--limit={}"],
    ["leaf", "compare", "t", "--max-wait={}"],
    ["leaf", "repair", "{}"],
    ["leaf", "repair", "t", "--where={}"],
    ["leaf", "repair", "t", "--limit={}"],
    ["leaf", "repair", "t", "--max-wait={}"],
    ["leaf", "errors", "{}"],
    ["leaf", "change-location", "{}", "dbname=x"],
    ["leaf", "change-location", "root", "{}"],
    ["leaf", "change-location", "leaf", "{}"],
    ["leaf", "rejoin", "--limit={}"],
    ["leaf", "rejoin", "--provider={}"],
    ["leaf", "rejoin", "--max-wait={}"],
    ["leaf", "resurrect", "--limit={}"],
    ["leaf", "resurrect", "--timeout={}"],
    ["leaf", "resurrect", "--max-wait={}"],
    ["leaf", "lost-events", "--format={}"],
    ["leaf", "skip", "{}"],
    ["leaf", "skip", "--event={}", "--reason=x"],
    ["leaf", "skip", "--tick={}", "--reason=x"],
    ["leaf", "skip", "--tick=@tick@", "--force", "--reason={}"],
    ["leaf", "quarantine", "{}"],
    ["quarantine", "quarantine", "show", "{}"],
    ["quarantine", "quarantine", "list", "--table={}"],
    ["quarantine", "quarantine", "list", "--until-tick={}"],
    ["quarantine", "quarantine", "replay", "--table={}"],
    ["quarantine", "quarantine", "drop", "--table={}", "--reason=x", "--yes"],
    ["quarantine", "quarantine", "drop", "--table=t", "--reason={}", "--yes"],
    ["root", "status", "--dead={}"],
    ["root", "web", "--host={}"],
    ["root", "web", "--port={}"],
    ["root", "execute", "{}"],
]


def doors(command: Command) -> set[str]:
    """Where text gets into a command: its words by number, its options that take a value."""
    found = {str(number) for number in range(len(command.arguments.split()))}
    return found | {" ".join(o.names) for o in command.options if o.metavar is not None}


def used(words: list[str]) -> set[str]:
    """Which of them a case goes through."""
    call = Grammar("londiste3", "", grammar.COMMANDS)
    command = call.by_name[words[1]]
    found = set()
    number = -1
    for word in words[2:]:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            number += 1
            found |= {str(number)} if "{}" in word else set()
        elif equals and "{}" in value:
            found |= {" ".join(o.names) for o in (*command.options, *GENERAL) if name in o.names}
    return found


def test_every_door_has_a_case() -> None:
    cases: dict[str, set[str]] = {}
    for words in COMMANDS:
        cases.setdefault(words[1], set()).update(used(words))
    lacking = {c.name: doors(c) - cases.get(c.name, set()) for c in grammar.COMMANDS}
    assert {name: doors for name, doors in lacking.items() if doors} == {}
    everywhere = {" ".join(o.names) for o in GENERAL if o.metavar is not None}
    assert everywhere <= set().union(*cases.values())


ASIDE = """
insert into vedur.quarantine (queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid,
    ev_type, ev_data, ev_extra1, table_name, dest_table, row_key, holds, cause)
values ('q', 'leaf', 1, 2, 3, 4, 'I:id', 'id=1&a=x', 'public.t', 'public.t', 'public.t', 'id=1',
    'row', 'skipped')
"""


@pytest.mark.draw(6)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: " ".join(w).replace("{}", "X"))
def test_hostile_words_of_a_command(
    nodes: Nodes, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    side, *command = words
    sides = {"root": nodes.root, "fresh": nodes.fresh}
    for text in HOSTILE:
        if side == "quarantine":
            nodes.leaf.execute(ASIDE)
        argv = [word.replace("{}", text) for word in nodes.words(command)]
        ini = nodes.ini(sides.get(side, nodes.leaf))
        try:
            code = main("londiste3", [ini, *argv])
        except SystemExit as end:
            code = int(str(end.code))
        said = capsys.readouterr()
        assert nodes.survived(), argv
        assert "Traceback" not in said.err
        assert "BUG" not in said.err, (argv, said.err)
        if code:
            errors = [x for x in said.err.splitlines() if " ERROR " in x]
            assert len(errors) <= 1 + said.err.count(" ERROR HINT") + said.err.count(
                " ERROR DETAIL"
            )
            assert said.err.strip(), argv
        kept(nodes, command, text, code)
        undo(nodes)


def kept(nodes: Nodes, command: list[str], text: str, code: int) -> None:
    """Text that may be anything is stored as it was written."""
    where = {"skip": ("reason", "skip_request"), "drop": ("ended_reason", "quarantine_log")}
    word = "drop" if "drop" in command else command[0]
    if "--reason={}" in command and word in where:
        assert code == 0
        column, table = where[word]
        rows = nodes.leaf.query(f"select {column} as said from vedur.{table}")
        assert [row.said for row in rows] == [text]
    elif command[0] == "create-branch" and not code:
        name = text if command[1] == "{}" else command[1]
        known = nodes.root.query("select node_name from pgq_node.node_location")
        assert name in [row.node_name for row in known]
        if "--sync-watermark={}" in command:
            info = get_node_info(nodes.fresh, "q")
            assert info is not None and info.attrs["sync_watermark"] == text


def undo(nodes: Nodes) -> None:
    """What was accepted goes again."""
    if nodes.leaf.value("select count(*) from londiste.table_info where local"):
        nodes.leaf.execute("select londiste.local_remove_table('q', 'public.t')")
    nodes.leaf.execute("drop table if exists made")
    for table in ("quarantine", "quarantine_log", "skip_request"):
        nodes.leaf.execute(f"delete from vedur.{table}")
    text = (
        "select node_name from pgq_node.node_location "
        "where queue_name = 'q' and node_name not in ('root', 'leaf')"
    )
    for row in nodes.root.query(text):
        settings = LondisteSettings(db=nodes.root.connstr, queue_name="q", job_name="root")
        with Session(settings) as session:
            drop_node(session, row.node_name)
    remove_other_queues(nodes.fresh, "")


PGQD = [
    f.name for f in dataclasses.fields(PgqdSettings) if f.name not in ("config_file", "warnings")
]


@pytest.mark.draw(3)
@pytest.mark.parametrize("key", PGQD)
def test_hostile_settings_of_the_ticker(nodes: Nodes, key: str, tmp_path: Path) -> None:
    """Refused with an error that the program prints, or of no effect; the queue ticks on."""
    name = nodes.root.value("select current_database()")
    base = vdb.conninfo.with_params(nodes.root.connstr, dbname=None)
    ini = tmp_path / "pgqd.ini"
    for text in HOSTILE:
        keys = {"base_connstr": base, "database_list": name, "ticker_period": "0.01", key: text}
        lines = [f"{k} = {v.replace(chr(10), chr(10) + ' ')}" for k, v in keys.items()]
        ini.write_text("[pgqd]\n" + "\n".join(lines) + "\n")
        ini.chmod(0o600)
        try:
            service = TickerService(load_pgqd(str(ini)))
            service.start()
        except VedurError as error:
            assert "BUG" not in error.message, (text, error.message)
        else:
            nodes.root.call("pgq.force_tick", "q")
            last = nodes.root.value("select max(tick_id) from pgq.tick")
            wait(lambda last=last: nodes.root.value("select max(tick_id) from pgq.tick") > last)
            assert service.stop()
        assert nodes.survived(), text


def test_a_database_of_a_hostile_name_is_ticked(oldest: Any) -> None:
    """The ticker finds it by itself; what it runs elsewhere is not made of the name."""
    name = f"x'; {DROP}; --\"$$ %s"
    oldest.template()
    oldest.admin.execute(
        f"create database {quote_ident(name)} template {quote_ident(oldest.template())}"
    )
    connstr = vdb.conninfo.with_params(oldest.connstr(), dbname=name)
    settings = PgqdSettings(
        base_connstr=vdb.conninfo.with_params(oldest.connstr(), dbname=None),
        initial_database=name,
        ticker_period=0.01,
    )
    service = TickerService(settings)
    try:
        with vdb.connect(connstr, autocommit=True) as db:
            db.execute("create table canary (x int)")
            db.call("pgq.create_queue", "q")
            last = db.value("select max(tick_id) from pgq.tick")
            service.start()
            db.call("pgq.force_tick", "q")
            wait(lambda: db.value("select max(tick_id) from pgq.tick") > last)
            assert service.stop()
            assert db.value("select count(*) from canary") == 0
    finally:
        service.stop()
        oldest.admin.execute(f"drop database {quote_ident(name)} with (force)")


@pytest.mark.draw(4)
@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("use", ["batch", "stream"])
def test_hostile_options_of_sparks_format(nodes: Nodes, option: Any, use: str) -> None:
    """Driven as Spark drives it: schema, offsets, partitions, rows."""
    for text in HOSTILE:
        given = {"url": nodes.root.connstr, "subscribe": "q", "table": "public.t"}
        given |= {"startingOffsets": "earliest", option.name: text}
        try:
            read(given, use)
        except VedurError as error:
            assert "BUG" not in error.message, (text, error.message)
        assert nodes.survived(), text
        if (option.name, use) == ("consumerName", "stream"):
            found = nodes.root.query("select co_name from pgq.consumer where co_name = %s", [text])
            assert len(found) == 1
            nodes.root.call("pgq.unregister_consumer", "q", text)


def read(given: dict[str, str], use: str) -> None:
    source = QueueSource(given)
    schema = source.schema()
    if use == "batch":
        once = source.reader(schema)
        for part in once.partitions():
            list(once.read(part))
        return
    reader = source.streamReader(schema)
    assert isinstance(reader, LimitedStreamReader)
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for part in reader.partitions(start, end):
            list(reader.read(part))
        reader.commit(end)
    finally:
        reader.stop()


@pytest.mark.draw(1)
@pytest.mark.parametrize("key", ["queue_name", "job_name", "node_name", "consumer_name", "db",
                                 "public_node_location", "event_format", "lock_timeout",
                                 "remote_extra_connstr", "register_only_tables"])  # fmt: skip
def test_hostile_settings(nodes: Nodes, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As a node is made with them, and as its state is asked for."""
    for text in HOSTILE:
        for db, command in (
            (nodes.root, ["create-root", "n", nodes.root.connstr]),
            (nodes.leaf, ["add-table", "t"]),
            (nodes.root, ["status"]),
        ):
            queue = {"queue_name": "other"} if command[0] == "create-root" else {}
            main("londiste3", [nodes.ini(db, **{**queue, key: text}), *command])
            said = capsys.readouterr()
            assert nodes.survived(), (command, text)
            assert "Traceback" not in said.err
            assert "BUG" not in said.err, (command, text, said.err)
        undo(nodes)
        remove_other_queues(nodes.root)


def remove_other_queues(root: vdb.Database, keep: str = "q") -> None:
    for row in root.query(
        "select queue_name from pgq_node.node_info where queue_name <> %s", [keep]
    ):
        name = root.value(
            "select node_name from pgq_node.node_info where queue_name = %s", [row.queue_name]
        )
        root.execute("select pgq_node.drop_node(%s, %s)", [row.queue_name, name])


@pytest.mark.parametrize(
    "text",
    [
        f"id > 0) ; {DROP}; --",
        f"id > 0) to stdout; {DROP}; copy (select 1 where (true",
        f"id > 0; {DROP}",
        "id > 0) or (true",
        "id > 0) or true --",
        "id > 0 /*",
        "a = 'x",
        'a = "x',
        "a = $$x",
    ],
)
def test_a_stored_condition_that_would_end_its_statement_is_refused(text: str) -> None:
    """Whoever may write the registry does not get the rights of the worker by it."""
    with pytest.raises(UsageError, match="condition"):
        written(text, alias="t")


class Hostile:
    """A set whose every name is hostile, worked on in this process."""

    queue = f"q'; {DROP}; --\"$$ {{0}} %s"
    job = f"job'; {DROP}; \"--"
    table = f"t'; {DROP}; --\""
    column = f"c\"); {DROP}; --'"
    sequence = f"s'; {DROP}; --"

    def __init__(self, root: vdb.Database, leaf: vdb.Database) -> None:
        self.root, self.leaf = root, leaf
        self.quoted = f"public.{quote_ident(self.table)}"
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.signals = Signals()

    def settings(self, db: vdb.Database, name: str) -> LondisteSettings:
        return LondisteSettings(
            db=db.connstr, queue_name=self.queue, job_name=self.job + name, exception_sleep=0.2,
            loop_delay=0.1,
        )  # fmt: skip

    def create(self) -> None:
        ddl = (
            f"create table canary (x int); create table {self.quoted} "
            f"({quote_ident(self.column)} int primary key, v text);"
            f"create sequence public.{quote_ident(self.sequence)}"
        )
        for db in (self.root, self.leaf):
            db.execute(ddl)
        for db, name, kind in (
            (self.root, "root'\"", NodeType.ROOT),
            (self.leaf, "leaf'\"", NodeType.LEAF),
        ):
            with Session(self.settings(db, name)) as session:
                provider = None if kind is NodeType.ROOT else self.root.connstr
                create_node(session, plan_node(session, kind, name, db.connstr, provider))
                add_table(session, AddTable(tables=[f"public.{self.table}"]))
                add_seq(session, [f"public.{self.sequence}"])

    def start(self) -> None:
        settings = self.settings(self.leaf, "leaf'\"")
        setup = CopySetup(self.queue, settings.job_name, self.leaf.connstr, retry_sleep=0.2)

        def applier(name: str, provider: str) -> SparkReplay:
            return SparkReplay(None, name, provider, self.leaf.connstr)  # type: ignore[arg-type]

        def runner(provider: str, state: Any) -> BatchRunner[Any]:
            made = applier(self.queue, provider)
            return BatchRunner(made, self.queue, state.worker_name, self.leaf.connstr)

        copies = Copying(setup, SparkLoader(None), applier)  # type: ignore[arg-type]
        worker = Worker(settings, runner, signals=self.signals, copies=copies)
        self._threads = [
            threading.Thread(target=worker.run, daemon=True),
            threading.Thread(target=self._tick, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _tick(self) -> None:
        with vdb.connect(self.root.connstr, autocommit=True) as db:
            while not self._stop.wait(0.05):
                db.call("pgq.force_tick", self.queue)
                db.execute("select pgq.ticker()")

    def rows(self) -> tuple[list[Any], list[Any]]:
        text = f"select r::text from {self.quoted} r order by 1"
        return self.root.query(text), self.leaf.query(text)

    def close(self) -> None:
        self._stop.set()
        self.signals.stop.set()
        for thread in self._threads:
            thread.join(timeout=60)


@pytest.mark.usefixtures("without_spark")
def test_a_set_of_hostile_names_works(oldest: Any, newest: Any, make_db_on: MakeDbOn) -> None:
    lab = Hostile(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True))
    lab.create()
    insert = f"insert into {lab.quoted} values (%s, %s)"
    for i in range(50):
        lab.root.execute(insert, [i, f"v{i}'; {DROP}; --"])
    try:
        lab.start()
        wait(lambda: len(lab.rows()[1]) == 50)
        lab.root.execute(insert, [100, f"x\\'; {DROP}; --"])
        lab.root.execute(f"update {lab.quoted} set v = v || '!'")
        wait(lambda: lab.rows()[0] == lab.rows()[1])
    finally:
        lab.close()
    assert len(lab.rows()[1]) == 51
    for db in (lab.root, lab.leaf):
        assert db.value("select count(*) from canary") == 0


def wait(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1500):
        try:
            if true():
                return
        except VedurError:
            pass
        pause.wait(0.04)
    raise AssertionError("waited a minute in vain")


def test_a_condition_in_the_registry_cannot_end_the_copy(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written past our commands, as a role that may write the registry can."""
    assert main("londiste3", [nodes.ini(nodes.leaf), "add-table", "t"]) == 0
    capsys.readouterr()
    from vedur.pipeline.copy import plan_table
    from vedur.tables.mapping import TableMap

    for text in (f"true) to stdout; {DROP}; --", f"true; {DROP}"):
        local_set_table_attrs(nodes.leaf, "q", "public.t", f"copy_condition={text}")
        table = TableMap("public.t", "public.t", condition=text)
        with pytest.raises(UsageError):
            plan_table(nodes.root, nodes.leaf, "q", table)
    undo(nodes)
