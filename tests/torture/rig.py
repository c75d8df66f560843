"""The laboratories of the campaign: a server for each node, a proxy before each, tickers, workers.

`pair` is a root and a leaf; `cascade` has a branch between them, with a ticker of its own. Workers
reach all servers through proxies only; the load, the ticker and the checks go
straight. The leaf's tables live in a tablespace of their own, a small tmpfs where the machine
allows mounts, so that its disk can be filled without the write-ahead log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import psycopg

from tests.fixtures.proxy import Proxy
from tests.torture import clockshim, schema
from tests.torture.commands import Commands, Done
from tests.torture.plain import COMMAND, PLAIN, WORKER
from tests.torture.processes import Supervised, working_in
from tests.torture.spark_server import SparkServer
from tests.torture.wire import NoWire, Wire
from vedur.demo.lab import QUEUE, Lab
from vedur.demo.server import Server, available

DBNAME = "torture"
ROOT, MID, LEAF = "root", "mid", "leaf"
#: laboratory -> its nodes, each below the one before
LABS = {"pair": (ROOT, LEAF), "cascade": (ROOT, MID, LEAF)}
DISK_MB = 96
#: The ticker on the server of the branch.
MID_TICKER = "mid_ticker"
#: What makes cycles short: small waits, small batches, quick rotation.
_WORKER = {
    "loop_delay": "0.2",
    "exception_sleep": "0.3",
    "connection_lifetime": "30",
    "lock_timeout": "3",
    "parallel_copies": "2",
    "max_batch_events": "3000",
    "global_wm_publish_period": "5",
    "local_wm_publish_period": "5",
    "ticker_max_lag": "0.4",
    "takeover_hook": "true",
}
_TICKER = {"maint_period": "2", "retry_period": "5", "check_period": "5", "syslog": "0"}
_SERVER = {
    "synchronous_commit": "off",  # ours must ask for more where it needs it
    "full_page_writes": "on",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "max_prepared_transactions": "5",
    "restart_after_crash": "on",
    "checkpoint_timeout": "30s",
    "log_line_prefix": "%m [%p] %a ",
    "autovacuum_naptime": "20s",
}


class Rig:
    """Everything that a cycle breaks and looks at."""

    def __init__(self, lab: str = "pair", plain: bool = False, shared_spark: bool = True) -> None:
        self.nodes = LABS[lab]
        self.followers = self.nodes[1:]
        #: workers carry their tasks themselves, without Java: see tests/torture/plain.py
        self.plain = plain
        #: then commands that need Spark have one of their own, which is there from the beginning
        self.shared_spark = plain and shared_spark
        self.base = Path(tempfile.mkdtemp(prefix="vedur-torture-"))
        self.lab = Lab(base=self.base)
        self.tmp = self.base / "tmp"
        self.tmp.mkdir()
        self.library = clockshim.build(self.base)
        self.clocks = {
            name: clockshim.Clock(self.base / f"clock.{name}")
            for name in (*self.nodes, *map(self.worker_name, self.followers))
        }
        self.proxies: dict[str, Proxy] = {}
        try:
            self.wire: Wire | None = Wire()
        except NoWire:
            self.wire = None
        self.processes: dict[str, Supervised] = {}
        self.disk = self.base / "disk"
        self.mounted = False
        #: in so many cycles more the branch may tell a watermark of its own (sync_watermark)
        self.synced = 0
        #: the node that the load writes to
        self.writer = ROOT
        self._kept = threading.local()

    # -- beginning and end ----------------------------------------------------------------------

    def start(self) -> Rig:
        """Servers, nodes, tables, daemons; returns when the first copies are done."""
        found = available()
        versions = {ROOT: found.get(16) or found[min(found)], LEAF: found[max(found)]}
        if MID in self.nodes:
            versions[MID] = found[min(found)]
        for name, binaries in versions.items():
            with self._server_env(name):
                self.lab.server(name, binaries, **_SERVER)
            far = self.wire.listener() if self.wire else None
            self.proxies[name] = Proxy(self.servers[name].port, far)
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
        self._write_inis(self._spark_section())
        self._create_root()
        for name in self.followers:  # from the root down: each copies from the one above
            self._create_follower(name)
            self.wait(lambda name=name: self.unfinished_tables(name) == 0, "first copies", 600.0)
        return self

    def close(self, keep: bool = False) -> None:
        """Stop all that was started."""
        for process in self.processes.values():
            process.stop()
        if hasattr(self, "commands"):
            self.commands.close()
        deadline = time.monotonic() + 15
        while working_in(self.base) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in working_in(self.base):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for proxy in self.proxies.values():
            proxy.close()
        if self.wire:
            self.wire.remove()
        for server in self.servers.values():
            server.stop("immediate")
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)
        if not keep:
            shutil.rmtree(self.base, ignore_errors=True)

    @contextlib.contextmanager
    def _server_env(self, name: str) -> Iterator[None]:
        """What the servers inherit: their clock."""
        if self.library is None:
            yield
            return
        added = {"LD_PRELOAD": str(self.library), clockshim.VARIABLE: str(self.clocks[name].path)}
        os.environ.update(added)
        try:
            yield
        finally:
            for key in added:
                del os.environ[key]

    def env(self, clock: str | None = None) -> dict[str, str]:
        """What our processes inherit."""
        here = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": here, "TMPDIR": str(self.tmp), "PYTHONUNBUFFERED": "1"}
        if clock and self.library:
            env["LD_PRELOAD"] = str(self.library)
            env[clockshim.VARIABLE] = str(self.clocks[clock].path)
        return env

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

    def _spark_section(self) -> str:
        """Workers and commands start a Spark of their own; where workers do without, commands share
        one, so that each of them can be killed and given again at once."""
        if self.shared_spark:
            server = SparkServer(self.base)
            env = {**self.env(), **server.env}
            output = self.base / "log" / "spark.out"
            self.processes["spark"] = Supervised(
                "spark", server.argv, env, output, self.base
            ).start()
            # nobody waits for it: a command that comes too early tries again by itself
            return f"\n[spark]\nspark.remote = {server.address}\n"
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # starts sooner
        return f"\n[spark]\nspark.master = local[2]\nspark.driver.extraJavaOptions = {java}\n"

    def _write_inis(self, spark: str) -> None:
        for name in self.nodes:
            self.lab.worker_ini(name, self.through(name), _WORKER, spark)
        if MID in self.nodes:
            files = {f"{x}file": f"{self.base}/{x}/{MID_TICKER}.{x}" for x in ("log", "pid")}
            path = self.lab.ticker_ini(MID, {**_TICKER, **files})
            self.lab.inis[MID_TICKER] = path.rename(path.with_stem(MID_TICKER))
        self.lab.ticker_ini(ROOT, _TICKER)

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
        self._start(name, "pgqd", [str(self.lab.inis[ini])])

    def start_worker(self, node: str, *, plain: bool = False) -> None:
        """The worker of a node, as a process that is kept alive."""
        args = [str(self.lab.inis[node]), "worker"]
        self._start(self.worker_name(node), "londiste3", args, plain=plain or self.plain)

    def _start(self, name: str, program: str, args: list[str], *, plain: bool = False) -> None:
        argv = [sys.executable, "-m", "tests.torture.entry", str(self.control(name)), program]
        clock = name if name in map(self.worker_name, self.followers) else None
        env = self.env(clock)
        if plain:
            env[PLAIN] = WORKER
        output = self.base / "log" / f"{name}.out"
        self.processes[name] = Supervised(name, argv + args, env, output, self.base).start()

    # -- reaching things ------------------------------------------------------------------------

    @property
    def servers(self) -> dict[str, Server]:
        """By node."""
        return self.lab.servers

    def worker_name(self, node: str) -> str:
        """The name of a node's worker among the processes."""
        return "worker" if node == LEAF else f"{node}_worker" if node == MID else node

    def provider_of(self, node: str) -> str:
        """The node above another one, when the laboratory is at rest."""
        return self.nodes[self.nodes.index(node) - 1]

    def through(self, name: str) -> str:
        """The connect string that the product uses."""
        proxy = self.proxies[name]
        return f"host={proxy.host} port={proxy.port} user=postgres dbname={DBNAME}"

    def connect(self, name: str, **more: Any) -> psycopg.Connection[Any]:
        """A connection of the campaign's own, not through the proxy."""
        connstr = self.servers[name].connstr(DBNAME)
        return psycopg.connect(
            connstr, autocommit=True, application_name="torture", connect_timeout=10, **more
        )

    def query(self, name: str, text: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Rows of one statement, on a connection that the thread keeps.

        A server that is coming up again after a crash is waited for, and a statement that lost
        a deadlock to the load, which left nothing of it, is said again.
        """
        kept: dict[str, psycopg.Connection[Any]] = self._kept.__dict__
        deadline = time.monotonic() + 180
        while True:
            try:
                if name not in kept or kept[name].closed:
                    kept[name] = self.connect(name)
                cursor = kept[name].execute(text, params)
                return cursor.fetchall() if cursor.description else []
            except psycopg.errors.DeadlockDetected:
                if time.monotonic() > deadline:
                    raise
            except psycopg.OperationalError:
                alive = name in kept and not kept[name].closed
                if alive or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def value(self, name: str, text: str, params: Any = None) -> Any:
        """One value."""
        rows = self.query(name, text, params)
        return rows[0][0] if rows else None

    def command(self, ini: str, *args: str, control: str = "", timeout: float = 400.0) -> Done:
        """`londiste3 <ini> args`."""
        path = str(self.lab.inis[ini])
        return self.commands.run(path, *args, control=control, timeout=timeout)

    def ok(self, ini: str, *args: str) -> Done:
        """A command that must work."""
        done = self.command(ini, *args)
        if done.code != 0:
            raise RuntimeError(f"londiste3 {ini} {' '.join(args)}: {done.code}: {done.err}")
        return done

    def wait(self, done: Callable[[], object], what: str, limit: float) -> float:
        """Until `done()`; the seconds it took. An outage meanwhile counts as not done."""
        began = time.monotonic()
        while True:
            try:
                if done():
                    return time.monotonic() - began
            except psycopg.OperationalError:
                pass
            if time.monotonic() - began > limit:
                raise TimeoutError(f"waited {limit:.0f} s in vain for {what}")
            time.sleep(0.03)

    # -- failpoints -----------------------------------------------------------------------------

    def control(self, process: str) -> Path:
        """The file that arms a failpoint of a process."""
        return self.base / f"arm.{process}"

    def arm(self, process: str, point: str, action: str, skip: int = 0) -> None:
        """The next time (but `skip`) that the process comes there."""
        control = self.control(process)
        for suffix in (".fired", ".go"):
            Path(f"{control}{suffix}").unlink(missing_ok=True)
        partial = Path(f"{control}.new")
        partial.write_text(json.dumps({"point": point, "action": action, "skip": skip}))
        partial.rename(control)

    def fired(self, process: str, limit: float) -> bool:
        """Wait until the armed point was reached; if it is not, disarm it."""
        control = self.control(process)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if Path(f"{control}.fired").exists():
                return True
            time.sleep(0.01)
        control.unlink(missing_ok=True)
        return Path(f"{control}.fired").exists()

    def release(self, process: str) -> None:
        """End a hold."""
        Path(f"{self.control(process)}.go").touch()

    def disarm(self) -> None:
        """No failpoint fires any more, none holds."""
        for process in (*self.processes, "command"):
            self.control(process).unlink(missing_ok=True)
            self.release(process)

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
