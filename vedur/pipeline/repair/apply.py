"""One transaction that makes the target's rows those of the stage, and logs each of them."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.names import QualifiedName, parse_name, quote_ident, quote_literal
from vedur.pipeline.compare.model import Pair
from vedur.pipeline.repair.stage import Stage
from vedur.sql import query
from vedur.tables.match import read_columns

_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True)
class Repaired:
    """Rows that were written."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True)
class RepairTable:
    """What a repair writes of a table: columns by name on the provider and on the target.

    `whole`: these are all columns of the target, so a row can be removed and brought again; `own`
    are those that only the target has. `collide`: rows can get into each other's way while they
    change. `repeats`: nothing keeps the target from having a key twice.
    """

    source_columns: tuple[str, ...]
    target_columns: tuple[str, ...]
    key: tuple[int, ...]  # positions of the key in them
    whole: bool
    collide: bool
    repeats: bool = False
    own: tuple[str, ...] = ()

    @classmethod
    def read(cls, db: Database, pair: Pair) -> RepairTable:
        """Read the table from the target's catalog."""
        table = parse_name(pair.dest)
        columns = read_columns(db, table)
        target_names = dict(zip(pair.column_names, pair.target_names, strict=True))
        generated = {c.name for c in columns if c.generated}
        pairs = [(s, t) for s, t in target_names.items() if t not in generated]
        names = [s for s, _ in pairs]
        key = {target_names[k] for k in pair.key_names}
        written = {t for _, t in pairs} | generated | pair.constants.keys()
        own = tuple(c.name for c in columns if c.name not in written)
        # what is the same in all rows of the table tells none of them from another
        uniques, checked = (
            [unique - pair.constants.keys() for unique in found]
            for found in _all_uniques(db, table)
        )
        return cls(
            tuple(names),
            tuple(t for _, t in pairs),
            tuple(names.index(k) for k in pair.key_names),
            not own,
            any(u != key for u in uniques),
            pair.tree or not any(u and u <= key for u in checked),
            own,
        )


def _all_uniques(db: Database, table: QualifiedName) -> tuple[list[set[str]], list[set[str]]]:
    """Read column sets that can collide, and those among them that the server checks here."""
    rows = db.query(query("compare", "all_uniques"), [table.quoted])
    uniques = [set(r.columns or ()) for r in rows]
    return uniques, [u for u, r in zip(uniques, rows, strict=True) if r.checked]


@dataclass(frozen=True)
class RepairMoment:
    """The tick of a queue at which both sides were read, under which a repair is recorded, and how
    many seconds it waits for locks that making a partition takes."""

    queue: str
    tick: int
    lock_timeout: float


def apply(db: Database, pair: Pair, table: RepairTable, stage: Stage, at: RepairMoment) -> Repaired:
    """Delete, update, insert inside the caller's transaction, whose role is replica."""
    filled = _fill(db, pair, table, stage, at)
    steps = ["repair_delete", "repair_changed", "repair_update", "repair_insert"]
    if pair.tree and not table.whole:
        steps[2] = "repair_move"
    elif (table.collide or table.repeats) and table.whole:
        steps[2] = "repair_take_out"
    if pair.partitions is not None and not pair.tree:
        _make_declared(db, pair, table, stage, at.lock_timeout)
    for step in steps:
        db.execute(query("compare", step).format(**filled))
    if pair.partitions is not None and pair.tree:
        db.query(query("replay", "spread_rows"), [pair.dest, _words(pair)])
    rows = db.query(query("compare", "repair_counts"), [at.queue, pair.name, at.tick])
    counts = {row.action: int(row.n) for row in rows}
    return Repaired(counts.get("insert", 0), counts.get("update", 0), counts.get("delete", 0))


def _make_declared(
    db: Database, pair: Pair, table: RepairTable, stage: Stage, lock_timeout: float
) -> None:
    """Make declared partitions that rows of the stage need; raise where that waits for those who
    read the table, since the comparison that found the rows is one of them."""
    target = pair.partitions
    assert target is not None and target.field is not None
    place = f"r.c{table.target_columns.index(target.field) + 1}"
    moment = db.value(query("replay", "part_moment"), [pair.dest, target.field, place])
    words = {"moment": moment, "period": quote_literal(target.period), "rows": stage.rows}
    before = db.value(query("compare", "lock_timeout"))
    db.value(query("compare", "set_lock_timeout"), [f"{lock_timeout}s"])
    for row in db.query(query("compare", "staged_moments").format(**words)):
        try:
            db.query(query("replay", "make_partition"), [pair.dest, _words(pair), row.moment])
        except DatabaseError as error:
            if error.sqlstate != _LOCK_NOT_AVAILABLE:
                raise
            raise StateError(
                f'table "{pair.dest}" has no partition for rows of {row.moment}, which a repair '
                "would bring, and making it waits for those who read the table: make the partition "
                "(select londiste.create_partition(...)), then run repair again"
            ) from error
    db.value(query("compare", "set_lock_timeout"), [before])


def _words(pair: Pair) -> str:
    assert pair.partitions is not None
    keys = pair.target.key_names
    return pair.partitions.as_json([keys], keys)


def _fill(
    db: Database, pair: Pair, table: RepairTable, stage: Stage, at: RepairMoment
) -> dict[str, object]:
    target = pair.target
    quoted = [quote_ident(c) for c in table.target_columns]
    staged = [f"r.c{i}" for i in range(1, len(quoted) + 1)]
    keys = [(quoted[i], staged[i]) for i in table.key]
    old, new = ", ".join(f"t.{q}" for q in quoted), ", ".join(staged)
    named = ", ".join(f"{s} as {q}" for s, q in zip(staged, quoted, strict=True))
    return {
        "dest": target.table,
        "only": target.only,
        "keys": stage.keys,
        "rows": stage.rows,
        "typed_key": ", ".join(
            f"cast(s.key::json ->> {i} as {kind}) as k{i + 1}"
            for i, kind in enumerate(target.key_types)
        ),
        "match": target.match(),
        "condition": target.condition,
        "row_match": " and ".join(f"t.{q} = {s}" for q, s in keys),
        "row_key": ", ".join(s for _, s in keys),
        "differs": (
            "true"
            if table.repeats and (table.whole or pair.tree)
            else f"row({old})::text is distinct from row({new})::text"
        ),
        "sets": ", ".join(f"{q} = {s}" for q, s in zip(quoted, staged, strict=True)),
        "columns": ", ".join([*quoted, *map(quote_ident, pair.constants)]),
        "values": ", ".join([*staged, *pair.constants.values()]),
        "own": ", ".join(quote_ident(c) for c in table.own),
        "gone_own": ", ".join(f"g.{quote_ident(c)}" for c in table.own),
        "gone_columns": ", ".join(f"g.{q}" for q, _ in keys),
        "gone_match": " and ".join(f"g.{q} = {s}" for q, s in keys),
        "new_row": query("compare", "named_row").format(columns=named),
        "key": _key_text("t", keys),
        "gone_key": _key_text("g", keys),
        "come_key": _key_text("c", keys),
        "queue": db.mogrify("%s", [at.queue]),
        "name": db.mogrify("%s", [pair.name]),
        "dest_name": db.mogrify("%s", [pair.dest]),
        "tick": at.tick,
    }


def _key_text(alias: str, keys: list[tuple[str, str]]) -> str:
    parts = ", ".join(f"cast({alias}.{q} as text)" for q, _ in keys)
    return query("compare", "key_text").format(key=parts)
