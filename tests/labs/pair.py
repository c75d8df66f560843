"""A root and a leaf in two databases, driven by hand: ticks come when a test says so."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.db.install import install

QUEUE = "q"
WORKER = "leaf_worker"


@dataclass
class Pair:
    """`root` and `leaf` are autocommit connections."""

    root: Database
    leaf: Database

    @classmethod
    def make(cls, root: Database, leaf: Database) -> Pair:
        """Two fresh databases become the nodes of one set."""
        for db in (root, leaf):
            db.autocommit = True
            install(db)  # as create-root and create-leaf do; upstream's schemas stay as they are
        call(root, "pgq_node.register_location", QUEUE, "root", root.connstr, False)
        call(root, "pgq_node.create_node", QUEUE, "root", "root", "root_worker", None, None, None)
        for db in (root, leaf):
            call(db, "pgq_node.register_location", QUEUE, "leaf", leaf.connstr, False)
        call(leaf, "pgq_node.register_location", QUEUE, "root", root.connstr, False)
        tick(root)
        last = root.value("select max(tick_id) from pgq.tick")
        call(root, "pgq_node.register_subscriber", QUEUE, "leaf", WORKER, last)
        call(leaf, "pgq_node.create_node", QUEUE, "leaf", "leaf", WORKER, "root", last, None)
        return cls(root, leaf)

    def table(
        self,
        name: str,
        ddl: str,
        *,
        dest: str | None = None,
        dest_ddl: str | None = None,
        flags: str | None = None,
        key: str | None = None,
    ) -> None:
        """Create a table on both sides and add it to the set, in sync from the start."""
        self.root.execute(ddl)
        self.leaf.execute(dest_ddl or ddl)
        args = ["expect_sync"]
        if flags:
            args.append(f"tgflags={flags}")
        if key:
            args.append(f"pkey={key}")
        call(self.root, "londiste.local_add_table", QUEUE, name, args)
        call(self.leaf, "londiste.global_add_table", QUEUE, name)
        call(
            self.leaf, "londiste.local_add_table", QUEUE, name, ["expect_sync"], None, dest or name
        )

    def tick(self) -> int:
        """Make a tick now; returns its id."""
        return tick(self.root)

    def rows(self, table: str, dest: str | None = None) -> tuple[list[str], list[str]]:
        """The rows of both sides as text, sorted."""
        return content(self.root, table), content(self.leaf, dest or table)


def call(db: Database, function: str, *args: object) -> None:
    """Call a function of the contract; a refusal fails the test."""
    marks = ", ".join(["%s"] * len(args))
    rows = db.query(f"select * from {function}({marks})", args)
    assert rows[0].ret_code < 300, rows


def tick(root: Database) -> int:
    """Force a tick with the ordinary ticker."""
    before = root.value("select max(tick_id) from pgq.tick")
    root.execute("select pgq.force_tick('q')")
    root.execute("select pgq.ticker()")
    after: int = root.value("select max(tick_id) from pgq.tick")
    assert after > before
    return after


def content(db: Database, table: str) -> list[str]:
    """All rows of a table as text."""
    return [r[0] for r in db.query(f"select t::text from {table} t order by 1")]
