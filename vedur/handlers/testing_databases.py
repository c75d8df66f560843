"""A kit for tests of a handler on databases of yours: has a node what it should have?

    from vedur.handlers.testing_databases import TwoDatabases, check_on_databases

    def test_mine() -> None:
        ini = {"handler_modules": "own_handlers"}
        nodes = TwoDatabases("dbname=mine_root", "dbname=mine_leaf", ini)
        check_on_databases(
            nodes, "public.orders", "region", {"code": "eu"},
            changes=["insert into orders ...", "delete from orders ..."],
            while_away=["update orders ..."],
        )

Both databases hold the table, that of the root may have rows in it, and no schemas of Londiste; the
test uses them up: they become the root and the leaf of a set. Commands run as they are installed,
with real Spark, and find the modules that the test finds. The oracle is the handler itself, given
the rows of the root one at a time: the leaf must have the same after the first copy, after each of
the `changes`, and after those that came while its worker was away; then `compare` must agree. What
differs is an AssertionError that shows the rows.

Not for handlers whose rows here do not follow from those that the root has now: with `statements`,
with operations that are left out, or with tables of their own for each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from vedur.config import LondisteSettings, load_londiste
from vedur.db import Database, connect
from vedur.errors import StateError
from vedur.handlers.api import ALL_OPERATIONS
from vedur.handlers.registry import Handled, make_registry
from vedur.names import parse_name, quote_ident
from vedur.sql import query
from vedur.threads import Thread

_QUEUE = "handler_test"
#: Seconds that a command may take, Java's start among them.
_PATIENCE = 600.0
#: Seconds between two calls of the ticker.
_TICKS = 0.2

Rows = list[tuple[str | None, ...]]


@dataclass(frozen=True)
class TwoDatabases:
    """Connect strings of two databases, and keys of the leaf's ini: for instance
    `handler_modules`. `spark` are lines of its section [spark]."""

    root: str
    leaf: str
    ini: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=lambda: {"spark.master": "local[2]"})


def check_on_databases(
    nodes: TwoDatabases,
    table: str,
    handler: str,
    arguments: Mapping[str, str] | None = None,
    *,
    changes: Sequence[str] = (),
    while_away: Sequence[str] = (),
) -> int:
    """Check a handler on a table of two databases, through a first copy, changes and a restart of
    the worker; returns how many rows the leaf has in the end."""
    given = dict(arguments or {})
    words = [f"--handler-arg={name}={value}" for name, value in given.items()]
    with (
        TemporaryDirectory(prefix="vedur-handler-") as place,
        connect(nodes.root, autocommit=True) as root,
        connect(nodes.leaf, autocommit=True) as leaf,
    ):
        commands = _Commands(Path(place), nodes)
        oracle = _Oracle(commands.settings, table, handler, given, root, leaf)
        commands.run("root", "create-root", "root", nodes.root)
        commands.run("leaf", "create-leaf", "leaf", nodes.leaf, f"--provider={nodes.root}")
        commands.run("root", "add-table", table)
        commands.run("leaf", "add-table", table, f"--handler={handler}", *words)
        with _ticker(nodes.root), commands.worker("root"):
            with commands.worker("leaf"):
                commands.run("leaf", "wait-sync")
                oracle.check("after the first copy")
                for text in changes:
                    root.execute(text)
                    commands.run("leaf", "wait-root")
                    oracle.check(f"after: {text}")
            for text in while_away:
                root.execute(text)
            with commands.worker("leaf"):
                commands.run("leaf", "wait-root")
                count = oracle.check("after a restart of the worker")
                if not oracle.handled.scope.uncomparable:
                    commands.run("leaf", "compare", table)
    return count


class _Commands:
    """The installed commands, and the ini files that they are given."""

    def __init__(self, place: Path, nodes: TwoDatabases) -> None:
        self.place = place
        for name, connstr, more in (("root", nodes.root, {}), ("leaf", nodes.leaf, nodes.ini)):
            keys = {
                "job_name": name,
                "db": connstr,
                "queue_name": _QUEUE,
                "logfile": f"{place}/{name}.log",
                "pidfile": f"{place}/{name}.pid",
                **more,
            }
            lines = ["[londiste3]", *(f"{key} = {value}" for key, value in keys.items())]
            lines += ["[spark]", *(f"{key} = {value}" for key, value in nodes.spark.items())]
            path = place / f"{name}.ini"
            path.touch(0o600)  # connect strings may hold passwords
            path.write_text("\n".join(lines) + "\n")
        self.settings = load_londiste(str(place / "leaf.ini"))

    def run(self, ini: str, *words: str) -> None:
        """Run a command; raises AssertionError with what it and the worker say if it fails."""
        self._run(str(self.place / f"{ini}.ini"), *words)

    @contextmanager
    def worker(self, ini: str) -> Iterator[None]:
        """Keep a worker running meanwhile; waits for its end."""
        path = str(self.place / f"{ini}.ini")
        self._run("-d", path, "worker")
        try:
            yield
        finally:
            self._run("-s", path)
            self._wait_for_end(self.place / f"{ini}.pid")

    def _wait_for_end(self, pidfile: Path) -> None:
        left, pause = _PATIENCE, Event()
        while pidfile.exists() and left > 0:
            pause.wait(0.1)
            left -= 0.1
        assert not pidfile.exists(), f"the worker of {pidfile.stem} does not end"

    def _run(self, *words: str) -> None:
        program = str(Path(sys.executable).with_name("londiste3"))
        modules = os.pathsep.join(entry for entry in sys.path if entry)
        done = subprocess.run(
            [program, *words],
            env={**os.environ, "PYTHONPATH": modules},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        log = self.place / "leaf.log"
        told = log.read_text()[-2000:] if log.exists() else ""
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}\n{told}"


@contextmanager
def _ticker(connstr: str) -> Iterator[None]:
    """Give the queue of the root its ticks meanwhile."""
    end = Event()

    def tick() -> None:
        with connect(connstr, autocommit=True) as db:
            while not end.wait(_TICKS):
                db.execute(query("handlers", "tick_all"))

    thread = Thread(target=tick, name="ticker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


class _Oracle:
    """Says what the leaf should have: the rows of the root, through the handler one by one."""

    def __init__(
        self,
        settings: LondisteSettings,
        table: str,
        handler: str,
        given: Mapping[str, str],
        root: Database,
        leaf: Database,
    ) -> None:
        known = make_registry(settings)
        made = known.make(handler, table, given)
        text = made.facts_query()
        facts = None if text is None else tuple(leaf.query(text)[0])
        self.handled: Handled = known.handled(handler, made, facts)
        self.table, self.root, self.leaf = table, root, leaf
        scope = self.handled.scope
        if self.handled.calls or scope.operations != ALL_OPERATIONS or scope.partitions:
            raise StateError(
                f'which rows handler "{handler}" has here does not follow from those of the root: '
                "this kit cannot check it"
            )
        for db in (root, leaf):
            db.execute(query("copy", "moments_in_utc"))

    def check(self, when: str) -> int:
        """Compare the leaf with the root; returns the number of its rows."""
        types = self._types(self.leaf)
        names, expected = self._expected(types)
        found = self._rows(self.leaf, names, "true")
        lacks = [row for row in expected if row not in found]
        extra = [row for row in found if row not in expected]
        assert sorted(map(str, found)) == sorted(map(str, expected)), (
            f"{when}: the leaf lacks {lacks[:5]}, and has {extra[:5]} that it should not have"
        )
        return len(found)

    def _expected(self, types: Mapping[str, str]) -> tuple[tuple[str, ...], Rows]:
        """Return columns, and the values of rows, as the leaf should have them."""
        scope, function = self.handled.scope, self.handled.rows
        names = tuple(self._types(self.root))
        rows = self._rows(self.root, names, scope.condition or "true") if scope.applies else []
        if function is None:
            here = tuple(name for name in names if name in types)
            places = [names.index(name) for name in here]
            return here, [tuple(row[at] for at in places) for row in rows]
        made = function.output(names)
        here = tuple(name for name in made if name in types)
        texts = []
        for row in rows:
            (one,) = function.apply(names, [list(row)])[1]
            if one is not None:
                texts.append(self._as_stored({n: one[made.index(n)] for n in here}, types))
        return here, texts

    def _as_stored(
        self, row: Mapping[str, str | None], types: Mapping[str, str]
    ) -> tuple[str | None, ...]:
        names = {name: quote_ident(name).replace("%", "%%") for name in row}
        values = ", ".join(f"%s::text::{types[name]}::text as {names[name]}" for name in row)
        text = query("handlers", "row_as_stored").format(values=values)
        return tuple(self.leaf.query(text, list(row.values()))[0])

    def _rows(self, db: Database, names: Sequence[str], condition: str) -> Rows:
        columns = ", ".join(f"{quote_ident(name)}::text" for name in names)
        words = {"columns": columns, "table": parse_name(self.table).quoted, "condition": condition}
        return [tuple(row) for row in db.query(query("handlers", "rows_as_text").format(**words))]

    def _types(self, db: Database) -> dict[str, str]:
        wanted = {"table": parse_name(self.table).quoted}
        return {
            row.name: row.type for row in db.query(query("handlers", "columns_as_text"), wanted)
        }
