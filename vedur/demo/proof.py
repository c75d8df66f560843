"""Proof that the leaves have what the root has: by reading both sides, and by `compare`."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from vedur import db as vdb


@dataclass(frozen=True)
class Pair:
    """A table of the root and what a leaf has of it."""

    source: str
    target: str
    condition: str = "true"


@dataclass(frozen=True)
class Verdict:
    """One table of one leaf. `compared` is what the command said, None where it said nothing."""

    node: str
    table: str
    rows_on_root: int
    rows_on_leaf: int
    same: bool
    compared: bool | None

    @property
    def equal(self) -> bool:
        """Return True if `compare` and our own reading both found the table equal."""
        return self.same and self.compared is True


def content(db: vdb.Database, table: str, condition: str) -> tuple[int, str]:
    """Read how many rows there are, and a hash of the full text of all of them in order: where it
    is equal, they are."""
    total = hashlib.sha256()
    count = 0
    statement = f"copy (select t::text from only {table} t where {condition} order by t) to stdout"
    with db.copy_out(statement) as blocks:
        for block in blocks:
            total.update(block)
            count += bytes(block).count(b"\n")
    db.rollback()
    return count, total.hexdigest()


def prove(
    root: vdb.Database, leaf: vdb.Database, node: str, pairs: Sequence[Pair], said: str
) -> list[Verdict]:
    """Read both sides of every table; `said` is the JSON that `compare` printed."""
    matches = {item["dest_table"]: bool(item["match"]) for item in json.loads(said or "[]")}
    found = []
    for pair in pairs:
        ours, theirs = (
            content(root, pair.source, pair.condition),
            content(leaf, pair.target, "true"),
        )
        found.append(
            Verdict(node, pair.target, ours[0], theirs[0], ours == theirs, matches.get(pair.target))
        )
    return found


def summary(verdicts: Sequence[Verdict]) -> Table:
    """Build the table at the end of the demo; it fits into 80 columns."""
    result = Table("table")
    for title in ("root rows", "leaf rows"):
        result.add_column(title, justify="right")
    result.add_column("compare")
    result.add_column("every row")
    for node, found in itertools.groupby(verdicts, lambda verdict: verdict.node):
        result.add_section()
        result.add_row(f"[bold]{node}[/bold]")
        for verdict in found:
            result.add_row(
                verdict.table,
                f"{verdict.rows_on_root:,}",
                f"{verdict.rows_on_leaf:,}",
                _mark(verdict.compared),
                _mark(verdict.same),
            )
    return result


def _mark(same: bool | None) -> str:
    if same is None:
        return "[red]not said[/red]"
    return "[green]equal[/green]" if same else "[red]DIFFERENT[/red]"
