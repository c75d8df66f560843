"""Takes indexes, constraints and foreign keys away from a table before a load; brings them back.

Indexes and their constraints are first written down as a script
(`londiste.table_info.dropped_ddl`) in the same transaction, so no crash can lose them. The script
is plain SQL, which `remove-table` (ours or upstream's) runs as it is; comment lines in it let us
run its parts side by side and skip those that are there already. Foreign keys are kept by functions
of the contract, until both of their tables are in sync.

Kept in place: what a partitioned index owns on a partition (its name belongs to the parent),
indexes of partitioned tables, and anything that other objects depend on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from vedur.db import Database, Row, exec_query
from vedur.errors import DatabaseError
from vedur.names import QualifiedName, quote_ident, quote_literal
from vedur.sql import query

log = logging.getLogger(__name__)

_MARK = "--- vedur "

#: 2BP01: other objects depend on it; then it stays, and the load is only slower.
_DEPENDED_ON = "2BP01"


Kind = Literal["index", "constraint", "attach", "marks"]


@dataclass(frozen=True)
class Part:
    """One statement list of the script.

    An `index` may be built beside others; then come, in order, a `constraint` that makes its own
    index, `attach` for a key over a built index, and `marks` (cluster, comments, statistics).
    """

    kind: Kind
    schema: str
    name: str
    text: str

    def written(self) -> str:
        """Return the part as it stands in the script."""
        head = json.dumps({k: v for k, v in asdict(self).items() if k != "text"} | {
            "chars": len(self.text)})  # fmt: skip
        return f"{_MARK}{head}\n{self.text}\n"


#: A script that brings nothing back: the copy of one part of a merge leads, and says so by having
#: one, although the indexes stay.
NOTHING_GONE = Part("marks", "", "", "select 1;")


@dataclass(frozen=True)
class TableDdl:
    """All parts that a table needs to get back."""

    parts: tuple[Part, ...]

    def script(self) -> str | None:
        """Return the text to store; None where nothing was taken away."""
        return "".join(p.written() for p in self.parts) or None

    def merge(self, newer: TableDdl) -> TableDdl:
        """Return these parts and those of a later look that are not among them."""
        known = {(p.kind, p.schema, p.name) for p in self.parts}
        extra = [p for p in newer.parts if (p.kind, p.schema, p.name) not in known]
        return TableDdl((*self.parts, *extra))


def parse_script(text: str | None) -> TableDdl | None:
    """Read a stored script; None if it is not one of ours and can only be run as a whole."""
    parts: list[Part] = []
    rest = text or ""
    while rest:
        if not rest.startswith(_MARK):
            return None
        head, _, rest = rest[len(_MARK) :].partition("\n")
        said = json.loads(head)
        chars = int(said["chars"])
        parts.append(Part(said["kind"], said["schema"], said["name"], rest[:chars]))
        rest = rest[chars:].removeprefix("\n")
    return TableDdl(tuple(parts))


def read_ddl(db: Database, oid: int, table: QualifiedName) -> TableDdl:
    """Read what can be taken away from a table now, with all that belongs to it."""
    parts = [p for row in db.query(query("copy", "indexes"), [oid]) for p in _describe(row, table)]
    order = ("index", "constraint", "attach", "marks")
    return TableDdl(tuple(sorted(parts, key=lambda p: order.index(p.kind))))


def _describe(row: Row, table: QualifiedName) -> list[Part]:
    before = after = ""
    if row.tablespace:
        before = f"set local default_tablespace = {quote_literal(row.tablespace)};\n"
        after = "\nset local default_tablespace = default;"
    parts: list[tuple[Kind, str]] = []
    if row.whole_constraint:
        made = (
            f"alter table {table.quoted} add constraint {quote_ident(row.constraint_name)} "
            f"{row.constraint_definition};"
        )
        if row.options:
            made += f"\nalter index {_index_name(row)} set ({row.options});"
        parts.append(("constraint", before + made + after))
    else:
        parts.append(("index", f"{before}{row.definition};{after}"))
        if row.constraint_name:
            parts.append(("attach", _constraint(row, table)))
    marks = "\n".join(_marks(row, table))
    if marks:
        parts.append(("marks", marks))
    return [Part(kind, row.schema, row.name, text) for kind, text in parts]


def _index_name(row: Row) -> str:
    return f"{quote_ident(row.schema)}.{quote_ident(row.name)}"


def _marks(row: Row, table: QualifiedName) -> Iterator[str]:
    index = quote_ident(row.name)
    if row.clustered:
        yield f"alter table {table.quoted} cluster on {index};"
    if row.replica_identity:
        yield f"alter table {table.quoted} replica identity using index {index};"
    for column, target in row.statistics.items():
        yield f"alter index {_index_name(row)} alter column {column} set statistics {target};"
    if row.comment is not None:
        yield f"comment on index {_index_name(row)} is {quote_literal(row.comment)};"
    if row.constraint_comment is not None:
        constraint = quote_ident(row.constraint_name)
        literal = quote_literal(row.constraint_comment)
        yield f"comment on constraint {constraint} on {table.quoted} is {literal};"


def _constraint(row: Row, table: QualifiedName) -> str:
    kind = "primary key" if row.constraint_type == "p" else "unique"
    text = f"alter table {table.quoted} add constraint {quote_ident(row.constraint_name)} "
    text += f"{kind} using index {quote_ident(row.name)}"
    if row.is_deferrable:
        text += " deferrable initially " + ("deferred" if row.is_deferred else "immediate")
    return text + ";"


def drop_parts(db: Database, oid: int, table: QualifiedName, ddl: TableDdl) -> TableDdl:
    """Drop what `ddl` describes, in the caller's transaction; what really went."""
    constraints = {
        (r.schema, r.name): r.constraint_name for r in db.query(query("copy", "indexes"), [oid])
    }
    gone: set[tuple[str, str]] = set()
    for part in ddl.parts:
        key = (part.schema, part.name)
        if part.kind not in ("index", "constraint") or key not in constraints:
            continue
        constraint = constraints[key]
        if constraint is not None:
            text = f"alter table {table.quoted} drop constraint {quote_ident(constraint)}"
        else:
            text = f"drop index {quote_ident(part.schema)}.{quote_ident(part.name)}"
        try:
            with db.transaction():
                db.execute(text)
            gone.add(key)
        except DatabaseError as error:
            if error.sqlstate != _DEPENDED_ON:
                raise
            log.info("%s: %s stays during the copy: %s", table, part.name, error)
    kept = {k for k in constraints if k not in gone}
    return TableDdl(tuple(p for p in ddl.parts if (p.schema, p.name) not in kept))


def build_jobs(ddl: TableDdl) -> tuple[list[Part], list[Part]]:
    """Return parts that may be built side by side, and those that follow in order.

    A constraint made as a whole locks the table against everything, so it is not side by side.
    """
    first = [p for p in ddl.parts if p.kind == "index"]
    return first, [p for p in ddl.parts if p.kind != "index"]


def build_part(db: Database, part: Part) -> bool:
    """Build one index unless it is there; True if it was built."""
    with db.transaction():
        if db.value(query("copy", "index_exists"), [part.schema, part.name]):
            return False
        db.execute(part.text)
    return True


def finish_parts(db: Database, oid: int, parts: Iterable[Part]) -> None:
    """Make constraints and marks, in the caller's transaction; constraints that are there stay."""
    rows = db.query(query("copy", "indexes"), [oid])
    constraints = {(r.schema, r.name): r.constraint_name for r in rows}
    for part in parts:
        if part.kind == "marks" or constraints.get((part.schema, part.name)) is None:
            db.execute(part.text)


# -- foreign keys ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key with the statement that makes it."""

    from_table: str
    to_table: str
    fkey_name: str
    fkey_def: str


def _from_row(row: Row) -> ForeignKey:
    return ForeignKey(row.from_table, row.to_table, row.fkey_name, row.fkey_def)


def find_table_fkeys(db: Database, table: str) -> list[ForeignKey]:
    """Read the foreign keys from and to a table that exist now."""
    return [_from_row(row) for row in exec_query(db, "londiste.find_table_fkeys", table)]


def get_table_pending_fkeys(db: Database, table: str) -> list[ForeignKey]:
    """Read the foreign keys from and to a table that wait to come back."""
    return [_from_row(row) for row in exec_query(db, "londiste.get_table_pending_fkeys", table)]


def get_valid_pending_fkeys(db: Database, queue: str) -> list[ForeignKey]:
    """Read the foreign keys that can come back now, because both sides are in sync."""
    return [_from_row(row) for row in exec_query(db, "londiste.get_valid_pending_fkeys", queue)]


def add_pending_fkey(db: Database, key: ForeignKey) -> None:
    """Let the worker make a foreign key once both of its tables are in sync here."""
    values = [key.from_table, key.to_table, key.fkey_name, key.fkey_def]
    db.execute(query("catalog", "add_pending_fkey"), values)


def drop_table_fkey(db: Database, table: str, name: str) -> None:
    """Take a foreign key away and remember it."""
    db.call("londiste.drop_table_fkey", table, name)
