"""What every laboratory of the campaign stands on: a directory with servers, processes that are
kept alive, operator's commands, and failpoints that can be armed in each of them.

Places (`query`, `connect`) have names; which database of which server a name means is for the
laboratory to say (`connstr`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.fixtures.proxy import Proxy
from tests.torture import clockshim
from tests.torture.commands import Commands, Done
from tests.torture.plain import PLAIN, WORKER
from tests.torture.processes import Supervised, working_in
from tests.torture.spark_server import SparkServer
from tests.torture.wire import NoWire, Wire
from vedur.demo.lab import Lab
from vedur.demo.server import Server

#: What makes cycles short: small waits, small batches, quick rotation.
WORKER_INI = {
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
TICKER_INI = {"maint_period": "2", "retry_period": "5", "check_period": "5", "syslog": "0"}
SERVER = {
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


class Ground:
    """Everything that a cycle breaks and looks at has its place here."""

    commands: Commands

    def __init__(self, plain: bool, shared_spark: bool) -> None:
        #: workers carry their tasks themselves, without Java: see tests/torture/plain.py
        self.plain = plain
        #: then commands that need Spark have one of their own, which is there from the beginning
        self.shared_spark = plain and shared_spark
        self.base = Path(tempfile.mkdtemp(prefix="vedur-torture-"))
        self.lab = Lab(base=self.base)
        self.tmp = self.base / "tmp"
        self.tmp.mkdir()
        self.library: Path | None = None  # for clocks that jump
        self.clocks: dict[str, clockshim.Clock] = {}
        self.proxies: dict[str, Proxy] = {}
        try:
            self.wire: Wire | None = Wire()
        except NoWire:
            self.wire = None
        self.processes: dict[str, Supervised] = {}
        self._kept = threading.local()

    # -- beginning and end ----------------------------------------------------------------------

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
        if not keep:
            shutil.rmtree(self.base, ignore_errors=True)

    @contextlib.contextmanager
    def server_env(self, name: str) -> Iterator[None]:
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

    def env(self, clock: str = "") -> dict[str, str]:
        """What our processes inherit."""
        here = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": here, "TMPDIR": str(self.tmp), "PYTHONUNBUFFERED": "1"}
        if clock and self.library:
            env["LD_PRELOAD"] = str(self.library)
            env[clockshim.VARIABLE] = str(self.clocks[clock].path)
        return env

    def spark_section(self) -> str:
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
        return f"\n[spark]\nspark.master = local[3]\nspark.driver.extraJavaOptions = {java}\n"

    def start_process(
        self, name: str, program: str, args: list[str], *, plain: bool = False, clock: str = ""
    ) -> None:
        """One of our programs, kept alive; `clock` names the one that it lives by."""
        argv = [sys.executable, "-m", "tests.torture.entry", str(self.control(name)), program]
        env = self.env(clock)
        if plain:
            env[PLAIN] = WORKER
        output = self.base / "log" / f"{name}.out"
        self.processes[name] = Supervised(name, argv + args, env, output, self.base).start()

    # -- reaching things ------------------------------------------------------------------------

    @property
    def servers(self) -> dict[str, Server]:
        """By name: of the node, where each has its own."""
        return self.lab.servers

    def connstr(self, name: str) -> str:
        """Where a place is, not through a proxy."""
        raise NotImplementedError

    def proxy(self, name: str, port: int) -> Proxy:
        """Put a proxy before a port; it is at the far end of the wire, where there is one."""
        self.proxies[name] = Proxy(port, self.wire.listener() if self.wire else None)
        return self.proxies[name]

    def connect(self, name: str, **more: Any) -> psycopg.Connection[Any]:
        """A connection of the campaign's own, not through the proxy."""
        return psycopg.connect(
            self.connstr(name),
            autocommit=True,
            application_name="torture",
            connect_timeout=10,
            **more,
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
