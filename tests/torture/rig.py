"""The laboratories of the campaign: a server for each node, a proxy before each, tickers, workers.

`pair` is a root and a leaf; `cascade` has a branch between them, with a ticker of its own. Workers
reach all servers through proxies only; the load, the ticker and the checks go
straight. The leaf's tables live in a tablespace of their own, a small tmpfs where the machine
allows mounts, so that its disk can be filled without the write-ahead log.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from urllib.parse import parse_qs

import psycopg

from tests.torture import clockshim, schema
from tests.torture.commands import Commands
from tests.torture.ground import SERVER, TICKER_INI, WORKER_INI, Ground
from tests.torture.plain import COMMAND, PLAIN
from vedur.demo.lab import QUEUE
from vedur.demo.server import available

DBNAME = "torture"
ROOT, MID, LEAF = "root", "mid", "leaf"
#: laboratory -> its nodes, each below the one before
LABS = {"pair": (ROOT, LEAF), "cascade": (ROOT, MID, LEAF)}
DISK_MB = 96
#: The ticker on the server of the branch.
MID_TICKER = "mid_ticker"


class Rig(Ground):
    """A root, perhaps a branch, and a leaf, each in a database of its own server."""

    def __init__(self, lab: str = "pair", plain: bool = False, shared_spark: bool = True) -> None:
        super().__init__(plain, shared_spark)
        self.nodes = LABS[lab]
        self.followers = self.nodes[1:]
        self.library = clockshim.build(self.base)
        self.clocks = {
            name: clockshim.Clock(self.base / f"clock.{name}")
            for name in (*self.nodes, *map(self.worker_name, self.followers))
        }
        self.disk = self.base / "disk"
        self.mounted = False
        #: in so many cycles more the branch may tell a watermark of its own (sync_watermark)
        self.synced = 0
        #: the node that the load writes to
        self.writer = ROOT

    # -- beginning and end ----------------------------------------------------------------------

    def start(self) -> Rig:
        """Servers, nodes, tables, daemons; returns when the first copies are done."""
        found = available()
        versions = {ROOT: found.get(16) or found[min(found)], LEAF: found[max(found)]}
        if MID in self.nodes:
            versions[MID] = found[min(found)]
        for name, binaries in versions.items():
            with self.server_env(name):
                self.lab.server(name, binaries, **SERVER)
            self.proxy(name, self.servers[name].port)
            self.lab.database(name, DBNAME, schema.OWNER)
        self._make_disk()
        with self.connect(ROOT) as db:
            db.execute(schema.TABLES + schema.ROOT_ONLY)
        with self.connect(LEAF) as db:
            if self.mounted:
                db.execute(f"create tablespace small location '{self.disk}/data'")
                db.execute(f"alter database {DBNAME} set default_tablespace = small")
        with self.connect(LEAF) as db:
            db.execute(schema.TABLES + schema.LEAF_ONLY)
        if MID in self.nodes:
            with self.connect(MID) as db:
                db.execute(schema.TABLES + schema.BRANCH_ONLY)
        plain = {PLAIN: COMMAND} if self.plain else {}
        self.commands = Commands(self.base, {**self.env(), **plain})
        self._write_inis(self.spark_section())
        self._create_root()
        for name in self.followers:  # from the root down: each copies from the one above
            self._create_follower(name)
            self.wait(lambda name=name: self.unfinished_tables(name) == 0, "first copies", 600.0)
        return self

    def close(self, keep: bool = False) -> None:
        """Stop all that was started."""
        super().close(keep=True)
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)
        if not keep:
            shutil.rmtree(self.base, ignore_errors=True)

    def _make_disk(self) -> None:
        self.disk.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(self.disk)],
            capture_output=True, check=False,
        )  # fmt: skip
        self.mounted = done.returncode == 0
        if self.mounted:
            (self.disk / "data").mkdir()
            if self.servers[LEAF].user:
                self.disk.chmod(0o755)
                shutil.chown(self.disk / "data", self.servers[LEAF].user)

    def _write_inis(self, spark: str) -> None:
        for name in self.nodes:
            self.lab.worker_ini(name, self.through(name), WORKER_INI, spark)
        if MID in self.nodes:
            files = {f"{x}file": f"{self.base}/{x}/{MID_TICKER}.{x}" for x in ("log", "pid")}
            path = self.lab.ticker_ini(MID, {**TICKER_INI, **files})
            self.lab.inis[MID_TICKER] = path.rename(path.with_stem(MID_TICKER))
        self.lab.ticker_ini(ROOT, TICKER_INI)

    def _create_root(self) -> None:
        self.ok(ROOT, "create-root", ROOT, self.through(ROOT))
        with self.connect(ROOT) as db:
            db.execute("update pgq.queue set queue_rotation_period = '2 seconds'")
        names = [f"{schema.OWNER}.{t}" for t in schema.NAMES]
        self.ok(ROOT, "add-table", *names, f"{schema.OWNER}.part")
        self.ok(ROOT, "add-seq", *schema.SEQUENCES)
        self.start_ticker("ticker", "pgqd")
        self.start_worker(ROOT)

    def _create_follower(self, name: str) -> None:
        kind = "branch" if name == MID else "leaf"
        above = self.through(self.provider_of(name))
        self.ok(name, f"create-{kind}", name, self.through(name), f"--provider={above}")
        self.add_tables(name, *(f"{schema.OWNER}.{t}" for t in (*schema.NAMES, "part")))
        self.ok(name, "add-seq", *schema.SEQUENCES)
        if name == MID:
            self.start_ticker(MID_TICKER, MID_TICKER)
        self.start_worker(name)

    def add_tables(self, node: str, *names: str) -> None:
        """Tables of a node below the root; on the leaf one of them is filtered and renamed."""
        part = f"{schema.OWNER}.part"
        if node == LEAF and part in names:
            names = tuple(name for name in names if name != part)
            self.ok(
                LEAF, "add-table", f"--dest-table={schema.OWNER}.{schema.PART_HERE}",
                f"--copy-condition={schema.PART_CONDITIONS[0]}", part,
            )  # fmt: skip
        if names:
            self.ok(node, "add-table", *names)

    def start_ticker(self, name: str, ini: str) -> None:
        """A ticker, as a process that is kept alive."""
        self.start_process(name, "pgqd", [str(self.lab.inis[ini])])

    def start_worker(self, node: str, *, plain: bool = False) -> None:
        """The worker of a node, as a process that is kept alive."""
        name = self.worker_name(node)
        self.start_process(
            name,
            "londiste3",
            [str(self.lab.inis[node]), "worker"],
            plain=plain or self.plain,
            clock=name if node in self.followers else "",
        )

    # -- reaching things ------------------------------------------------------------------------

    def worker_name(self, node: str) -> str:
        """The name of a node's worker among the processes."""
        return "worker" if node == LEAF else f"{node}_worker" if node == MID else node

    def provider_of(self, node: str) -> str:
        """The node above another one, when the laboratory is at rest."""
        return self.nodes[self.nodes.index(node) - 1]

    def connstr(self, name: str) -> str:
        """The database of a node."""
        return self.servers[name].connstr(DBNAME)

    def through(self, name: str) -> str:
        """The connect string that the product uses."""
        proxy = self.proxies[name]
        return f"host={proxy.host} port={proxy.port} user=postgres dbname={DBNAME}"

    # -- facts ----------------------------------------------------------------------------------

    def unfinished_tables(self, node: str = LEAF) -> int:
        """Tables of a node that are not ok, and foreign keys that are still put aside."""
        return int(
            self.value(
                node,
                "select (select count(*) from londiste.table_info"
                " where local and (merge_state is distinct from 'ok' or custom_snapshot is not null"
                "                  or dropped_ddl is not null))"
                " + (select count(*) from londiste.pending_fkeys)",
            )
        )

    def part_condition(self) -> str:
        """Which rows of the filtered table the leaf has now."""
        text = "select table_attrs from londiste.table_info where table_name = %s"
        attrs = parse_qs(self.value(LEAF, text, [f"{schema.OWNER}.part"]))
        return attrs["copy_condition"][0]

    def position(self, node: str = LEAF) -> int:
        """The tick that a node has completed."""
        text = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
        return int(self.value(node, text, [node]))

    def last_tick(self, node: str = ROOT) -> int:
        """The newest tick of the root's queue, or of a branch's."""
        return int(self.value(node, "select max(tick_id) from pgq.tick"))

    def forced_tick(self, limit: float) -> int:
        """A tick that was begun after now."""
        began = self.last_tick()
        goal = began + 2  # the first one may have been begun before
        deadline = time.monotonic() + limit
        while (last := self.last_tick()) < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no tick after {last} in {limit:.0f} s")
            with contextlib.suppress(psycopg.OperationalError):
                self.query(ROOT, "select pgq.force_tick(%s)", [QUEUE])
            time.sleep(0.03)
        return last
