"""Set-based merge of staged tables: DELETE, UPDATE, INSERT, in the caller's transaction.

Deletes go first and inserts last, so a unique value can move from one row to another. Updates in
between can still collide in passing (two rows swapping a unique value); then the same work is
done again with the old versions of all updated rows taken out before the first new one goes in.

Tables with few changes whose statements are known beforehand go together, many in a round trip
(`merge_together`): of a batch over hundreds of tables most of the time is waiting for answers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from vedur.change.event import MERGEABLE, NOT_MERGEABLE, Kind
from vedur.db import Database
from vedur.errors import DatabaseError, RowByRowNeeded, StaleStage
from vedur.names import quote_ident, quote_literal
from vedur.pipeline.replay.staged import CONTRADICTION, FEW_CHANGES, Part, StagedTable
from vedur.pipeline.replay.staging_tables import stage_name
from vedur.sql import query
from vedur.tables.mapping import TableSpec
from vedur.tables.target import PART

log = logging.getLogger(__name__)

#: unique_violation and exclusion_violation
_COLLISIONS = frozenset(("23505", "23P01"))
#: Below this the planner's guess (few rows, index lookups) is right without statistics.
ANALYZE_ROWS = 20_000
#: Every statement reads the whole staging table to find its part; beyond this a fold is cheaper.
MAX_PARTS = 8
#: The latest of more updates are sorted at more cost than another join with the table has: 88,000
#: of 200,000 rows in two parts 0.27 to 0.34 s of CPU (part after part 0.33 to 0.55), 200,000 of
#: them 0.59 to 0.71 (0.53 to 0.68).
LATEST_ROWS = 100_000


@dataclass
class Merged:
    """How many rows the changes of one table have touched."""

    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    missing: int = 0

    def add(self, more: Merged) -> None:
        """Count another part."""
        self.deleted += more.deleted
        self.updated += more.updated
        self.inserted += more.inserted
        self.missing += more.missing


@dataclass(frozen=True)
class Step:
    """A statement of a merge, and what the rows that it touches count as."""

    text: str  # empty: nothing to run, `of` rows count as changed
    counts: str  # a field of `Merged`
    of: int | None = None  # rows that should be there: those that are not are missing

    def done(self, answer: Any) -> Merged:
        """Count the server's answer: rows that were changed, or (expected, changed) of
        `merge_update_latest`."""
        if isinstance(answer, int):
            changed, of = answer, self.of
        else:
            ((of, changed),) = answer
        missing = of - changed if of is not None else 0
        return Merged(**{self.counts: changed, "missing": missing})


@dataclass(frozen=True)
class Selection:
    """The net changes that statements apply to: those staged under some slice numbers, without
    those that began before event `after`, a truncate (0 for none).

    `kinds` counts them by kind and shape. Statements are built for a selection and never change it;
    a rewrite of what is staged gives another one.
    """

    slices: tuple[int, ...]
    after: int = 0
    kinds: Mapping[tuple[Kind, int], int] = field(default_factory=dict)
    within: str = ""  # a further condition, as SQL

    @property
    def condition(self) -> str:
        """The selection as SQL, of a staging table that is called s."""
        chosen = f"s.slice in ({', '.join(map(str, self.slices))})"
        if self.within:
            chosen += f" and {self.within}"
        return f"{chosen} and s.ev_first > {self.after}" if self.after else chosen

    def has(self, kind: Kind) -> bool:
        """Is there a net change of this kind?"""
        return any(n for (k, _), n in self.kinds.items() if k == kind)

    def is_within(self, kinds: Collection[Kind]) -> bool:
        """Are all net changes of these kinds?"""
        return all(kind in kinds for kind, _ in self.kinds)

    @classmethod
    def of_part(cls, part: Part) -> Selection:
        """Select what one task wrote at one time."""
        return cls((part.slice,), 0, part.kinds)


class MergeSql:
    """The statements that merge one table, as text for a `Selection` of what is staged for it.

    Asks nobody and never changes: the same selection gives the same text. Rows go to the table, or
    to `partition` (quoted) where a handler says so.
    """

    def __init__(self, table: StagedTable, slot: int, partition: str = "") -> None:
        spec = table.spec
        self.spec = spec
        self.shapes = table.shapes
        self.keys = tuple(key for key in table.keys if key != PART)
        #: Where the staging table has a column.
        self.position = position = {c.name: f"c{i}" for i, c in enumerate(spec.stage_columns)}
        places = [position[k] for k in self.keys]
        same = [f"d.{quote_ident(k)} = s.{position[k]}" for k in self.keys]
        # what keeps a change away from the rows of other tables that are in the same one here
        if own := spec.own("d"):
            same.append(f"({own}\n)")
        self._words = {
            "only": spec.only,
            "dest": partition or spec.dest,
            "stage": stage_name(spec, slot),
            "keys": ", ".join(places),
            "own_keys": ", ".join(f"s.{k}" for k in places),
            "match": " and ".join(same),
        }

    @cached_property
    def identity_in_the_way(self) -> bool:
        """Does a column forbid updates? GENERATED ALWAYS AS IDENTITY accepts an inserted value, but
        no update of it."""
        return any(c.identity_always and c.name not in self.keys for c in self.spec.stage_columns)

    def text(self, name: str, selected: Selection, **words: object) -> str:
        """Return a statement of `sql/queries/replay.sql` for a selection."""
        every = {**self._words, "chosen": selected.condition, **words}
        return query("replay", name).format_map(every)

    def steps(self, selected: Selection, reinsert: bool) -> list[Step]:
        """Return what merges a selection whose keys occur once: deletes, updates, inserts."""
        steps, kinds = [], selected.kinds
        if selected.has(Kind.DELETE) or selected.has(Kind.REPLACE):
            steps.append(Step(self.text("merge_delete", selected), "deleted"))
        for shape, columns in self.shapes.items():
            count = kinds.get((Kind.UPDATE, shape), 0)
            if not count:
                continue
            build = self._reinsert if reinsert else self._update
            text = build(selected, shape, columns)
            brings = bool(self.spec.condition) or self.spec.keeps_latest
            steps.append(Step(text, "updated", None if brings and text else count))
            if brings:
                text = self._insert(selected, shape, columns, "merge_insert_missing")
                steps.append(Step(text, "inserted"))
        for shape, columns in self.shapes.items():
            if kinds.get((Kind.INSERT, shape)) or kinds.get((Kind.REPLACE, shape)):
                steps.append(Step(self._insert(selected, shape, columns), "inserted"))
        return steps

    def latest(self, selected: Selection) -> Step:
        """Return the update of each key to its last version, for updates of the same columns."""
        ((shape, columns, count),) = (
            (s, c, n)
            for s, c in self.shapes.items()
            if (n := selected.kinds.get((Kind.UPDATE, s), 0))
        )
        sets = self._sets(columns)
        if not sets:
            return Step("", "updated", count)
        types = self.spec.by_name
        # Whatever the order is, it need not be that of a language.
        keys = ", ".join(
            f's.{self.position[k]} collate "C"' if types[k].text else f"s.{self.position[k]}"
            for k in self.keys
        )
        text = self.text("merge_update_latest", selected, shape=shape, sets=sets, keys=keys)
        return Step(text, "updated")

    def _sets(self, columns: tuple[str, ...]) -> str:
        return ", ".join(
            f"{quote_ident(c)} = s.{self.position[c]}"
            for c in columns
            if c not in self.keys and c != PART
        )

    def _update(self, selected: Selection, shape: int, columns: tuple[str, ...]) -> str:
        sets = self._sets(columns)
        # a table that is all key: an update says nothing new
        return self.text("merge_update", selected, shape=shape, sets=sets) if sets else ""

    def _insert(
        self, selected: Selection, shape: int, columns: tuple[str, ...], name: str = "merge_insert"
    ) -> str:
        columns = tuple(c for c in columns if c != PART)
        return self.text(
            name,
            selected,
            shape=shape,
            columns=", ".join([*map(quote_ident, columns), *self.spec.constants]),
            values=", ".join(
                [*(f"s.{self.position[c]}" for c in columns), *self.spec.constants.values()]
            ),
        )

    def _reinsert(self, selected: Selection, shape: int, columns: tuple[str, ...]) -> str:
        """Return SQL that inserts the rows anew: columns that the events do not have keep the value
        of the row taken out."""
        columns = tuple(c for c in columns if c != PART)
        others = (c.name for c in self.spec.stage_columns if c.name not in columns)
        kept = [name for name in others if name != PART]
        returning = [f"s.{self.position[c]} as n{i}" for i, c in enumerate(columns)]
        returning += [f"d.{quote_ident(c)} as k{i}" for i, c in enumerate(kept)]
        return self.text(
            "merge_reinsert",
            selected,
            shape=shape,
            returning="".join(f", {r}" for r in returning),
            columns=", ".join([*map(quote_ident, (*columns, *kept)), *self.spec.constants]),
            values=", ".join(
                [f"n{i}" for i in range(len(columns))]
                + [f"k{i}" for i in range(len(kept))]
                + [*self.spec.constants.values()]
            ),
        )


@dataclass
class TableMerge:
    """One table of one batch; `after` is the event of its last truncate. `partition` is the table
    that rows go to where a handler says so (quoted), `moment` the time of the changes that do."""

    db: Database
    table: StagedTable
    slot: int
    slices: list[int]
    after: int = 0
    partition: str = ""
    moment: str = ""

    def __post_init__(self) -> None:
        self.spec: TableSpec = self.table.spec
        self.sql = MergeSql(self.table, self.slot, self.partition)
        self.keys, self.position = self.sql.keys, self.sql.position
        #: All that the tasks of the batch have staged for the table.
        self.staged = Selection(
            tuple(self.table.slices if self.table.parts else self.slices),
            self.after,
            self.table.kinds,
            f"s.{self.position[PART]} = {quote_literal(self.moment)}" if self.moment else "",
        )

    def run(self) -> Merged:
        """Merge: writes to the table. Where it raises `RowByRowNeeded`, no row of that stays."""
        staged = self.staged
        if self.table.rows > ANALYZE_ROWS:
            self._run("analyze", staged)
        self._check()
        if self.after or staged.within:
            staged = self._count(staged)
        alike = self._alike()
        parts: list[Part] = []
        if alike == Kind.UPDATE and self.table.rows > LATEST_ROWS:
            parts = self._parts_in_sequence()
            alike = None if parts else alike
        elif alike is None:
            parts = self._parts_in_sequence()
            if not parts and self.table.needs_fold:
                staged = self._fold(staged)
            _require_composed(staged)  # a task may have found that already
        if self.spec.condition:
            staged = self._filter(staged)
        if self.spec.partitions is not None:
            staged = self._for_partitions(staged)
        if staged.has(Kind.NOTHING) and self.db.value(self.sql.text("existing", staged)):
            raise RowByRowNeeded("a row that the batch inserts and deletes is there already")
        try:
            with self.db.transaction():
                latest = alike == Kind.UPDATE
                steps = [self.sql.latest(staged)] if latest else self._steps_of(staged, parts)
                return self._run_checked(staged, steps)
        except DatabaseError as error:
            if error.sqlstate not in _COLLISIONS or not staged.has(Kind.UPDATE):
                raise
            log.debug("%s: changes collide in passing, rows are taken out first", self.spec.name)
            if alike is not None:
                staged = self._fold(staged)
            with self.db.transaction():
                steps = self._steps_of(staged, parts, reinsert=True)
                return self._run_checked(staged, steps)

    def known_steps(self) -> list[Step]:
        """Return all that a merge takes, where few rows are staged and nothing must be asked first;
        else none."""
        if self.table.rows > FEW_CHANGES or self.after or self.spec.condition:
            return []
        if self.spec.partitions is not None:
            return []
        if self.spec.may_repeat(self.keys):
            return []
        if not self.staged.is_within(MERGEABLE):
            return []
        alike = self._alike()
        if alike == Kind.UPDATE:
            return [self.sql.latest(self.staged)]
        parts = self._orderable() if alike is None else []
        if alike is None and (not _apart(parts) if parts else self.table.needs_fold):
            return []
        return self._steps_of(self.staged, parts)

    def clear_way(self) -> None:
        """Delete rows that an insert would find: the events know better."""
        self._require_single(self.staged)
        self._run("merge_clear", self.staged)

    def _alike(self) -> Kind | None:
        """Return the kind of all changes in several parts, if one statement can take them as they
        are; else None.

        Inserts can, and so can updates of the same columns: whatever the order of their parts,
        the last one of a key is all that counts (`merge_update_latest`).
        """
        if not self._is_plain or len(self.table.parts) < 2:
            return None
        marks = [mark for mark, count in self.table.kinds.items() if count]
        if all(kind == Kind.INSERT for kind, _ in marks):
            return Kind.INSERT
        same = len(marks) == 1 and marks[0][0] == Kind.UPDATE and not self.sql.identity_in_the_way
        return Kind.UPDATE if same else None

    @property
    def _is_plain(self) -> bool:
        """Do staged keys tell rows apart as they are, with no condition and no truncate?"""
        canonical = self.spec.canonical(self.keys)
        return canonical and not self.spec.condition and not self.after and not self.spec.partitions

    def _parts_in_sequence(self) -> list[Part]:
        """Return parts that can be merged one after the other like batches; none if they cannot.

        A fold rewrites all that is staged (0.95 s of CPU for 190,000 rows, where merging them
        takes 0.75 s); in sequence only the keys that are in several parts cost something. It needs
        parts whose runs of a key do not interleave: they may where transactions ran side by side.
        """
        parts = self._orderable()
        reached = parts[0].last if parts else 0
        for at, part in enumerate(parts[1:], 1):
            if part.first <= reached and self._interleaved(parts[:at], part, reached):
                return []
            reached = max(reached, part.last)
        return parts

    def _orderable(self) -> list[Part]:
        """Return several parts in the order of their first events, if that can help; else none."""
        parts = sorted(self.table.parts, key=lambda p: p.first)
        if not self._is_plain or not 1 < len(parts) <= MAX_PARTS:
            return []
        return parts if self.staged.is_within(MERGEABLE) else []

    def _interleaved(self, earlier: list[Part], part: Part, reached: int) -> bool:
        keys = [self.position[k] for k in self.keys]
        return bool(
            self.db.value(
                self.sql.text(
                    "interleaved",
                    self.staged,
                    earlier=", ".join(str(p.slice) for p in earlier),
                    part=part.slice,
                    first=part.first,
                    reached=reached,
                    same=" and ".join(f"a.{k} = b.{k}" for k in keys),
                )
            )
        )

    def _run_checked(self, staged: Selection, steps: list[Step]) -> Merged:
        """Run steps. A key that names several rows before or after them raises `RowByRowNeeded`;
        only keys that the server does not check itself are looked at."""
        self._require_single(staged)
        done = _counted(steps, iter(self.db.each(_texts(steps))))
        if self.spec.is_tree:
            words = [self.spec.home, self.spec.partition_words]
            self.db.query(query("replay", "spread_rows"), words)
        self._require_single(staged)
        return done

    def _require_single(self, staged: Selection) -> None:
        if self.spec.may_repeat(self.keys) and self.db.value(self.sql.text("doubled", staged)):
            raise RowByRowNeeded("a key names several rows here")

    def _check(self) -> None:
        """Require that all that was announced is there, and that the truncate cuts no net change in
        two.

        A truncate is seen by the task of its own slice. Another slice may hold an older
        transaction that wrote the same key on both sides of it.
        """
        self.require(self.db.one(self.counting))

    @property
    def counting(self) -> str:
        """The statement whose answer `require` wants."""
        listed = ", ".join(map(str, self.staged.slices))
        return self.sql.text("staged", self.staged, slices=listed, after=self.after)

    def require(self, found: Any) -> None:
        """See `_check`."""
        if found.n != self.table.rows:
            raise StaleStage(
                f'table "{self.spec.name}": {found.n} of {self.table.rows} staged changes are '
                "there; the batch must be staged again"
            )
        if self.after and found.astride:
            raise RowByRowNeeded("a truncate falls between the changes of a key")

    # -- partitions -----------------------------------------------------------------------------

    def read_moments(self) -> list[str]:
        """Read the times of staged changes that choose their partitions."""
        text = self.sql.text("staged_parts", self.staged, part=self.position[PART])
        return [row.moment for row in self.db.query(text)]

    def _for_partitions(self, staged: Selection) -> Selection:
        """Make ready for rows that go to partitions: an update may bring a row that is not there,
        and a table with declared partitions must have one for each row."""
        target = self.spec.partitions
        assert target is not None
        if target.row_mode == "keep_latest" and target.field is None:
            # a period may have a row that was deleted in another one and comes again
            self._run("latest_in_part", staged)
            staged = self._count(staged)
        if target.field is not None and self.spec.partitioned:
            place = f"s.{self.position[target.field]}"
            moment = self.db.value(
                query("replay", "part_moment"), [self.spec.home, target.field, place]
            )
            period = quote_literal(target.period)
            for row in self.db.query(
                self.sql.text("staged_moments", staged, moment=moment, period=period)
            ):
                words = [self.spec.home, self.spec.partition_words, row.moment]
                self.db.query(query("replay", "make_partition"), words)
        return staged

    def _steps_of(self, staged: Selection, parts: list[Part], reinsert: bool = False) -> list[Step]:
        """Return the statements for all that is staged, or for parts one after the other."""
        # what a row of a tree becomes may belong to another of its tables
        reinsert = reinsert or self.sql.identity_in_the_way or self.spec.is_tree
        selections = [Selection.of_part(part) for part in parts] or [staged]
        return [step for selected in selections for step in self.sql.steps(selected, reinsert)]

    # -- rewriting what is staged ---------------------------------------------------------------

    def _fold(self, staged: Selection) -> Selection:
        """Compose all net changes of a key to one; writes to the staging table if there is a key
        with several."""
        if self.table.chunks == 1 and not self.db.value(self.sql.text("has_duplicates", staged)):
            return staged
        folded = self._rewrite("fold", staged)
        _require_composed(folded)
        return folded

    def _filter(self, staged: Selection) -> Selection:
        """Turn the changes into those of the rows that meet the table's condition."""
        places = self.position.items()
        return self._rewrite(
            "filter",
            staged,
            condition=self.spec.condition,
            named=", ".join(f"s.{place} as {quote_ident(name)}" for name, place in places),
            alias=self.spec.alias,
        )

    def _rewrite(self, name: str, staged: Selection, **words: object) -> Selection:
        """Write what is staged in another form, under a slice number of its own."""
        target = secrets.randbits(62)
        places = range(len(self.position))
        with self.db.transaction():  # a condition can fail, and the caller goes on from there
            self._run(
                name,
                staged,
                target=target,
                columns="".join(f", c{i}" for i in places),
                values="".join(f", f.c{i}" for i in places),
                **words,
            )
        return self._count(Selection((target,)))

    def _count(self, staged: Selection) -> Selection:
        """Count by kind what is there; reads the staging table."""
        rows = self.db.query(self.sql.text("kinds", staged))
        return replace(staged, kinds={(Kind(r.kind), r.shape): r.n for r in rows})

    def _run(self, name: str, selected: Selection, **words: object) -> int:
        return self.db.execute(self.sql.text(name, selected, **words))


def _require_composed(staged: Selection) -> None:
    if any(kind in NOT_MERGEABLE for kind, _ in staged.kinds):
        raise RowByRowNeeded(CONTRADICTION)


def _apart(parts: list[Part]) -> bool:
    """Has each part ended before the next begins? Then no key's changes interleave."""
    return all(a.last < b.first for a, b in pairwise(parts))


def merge_together(db: Database, merges: Sequence[tuple[TableMerge, list[Step]]]) -> list[Merged]:
    """Merge several tables by steps that are known, in one round trip."""
    texts = []
    for merge, steps in merges:
        texts += [merge.counting, *_texts(steps)]
    answers = iter(db.each(texts))
    found = []
    for merge, steps in merges:
        merge.require(next(answers)[0])
        found.append(_counted(steps, answers))
    return found


def _texts(steps: Iterable[Step]) -> list[str]:
    return [step.text for step in steps if step.text]


def _counted(steps: Iterable[Step], answers: Iterator[Any]) -> Merged:
    """Return what steps have done; each that has a statement takes an answer."""
    done = Merged()
    for step in steps:
        done.add(step.done(next(answers) if step.text else step.of))
    return done
