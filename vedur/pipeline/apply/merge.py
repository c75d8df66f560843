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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vedur.change.table import TableSpec
from vedur.db import Database
from vedur.errors import DatabaseError, StaleStage
from vedur.names import quote_ident
from vedur.pipeline.plan import FEW_CHANGES, Part, StagedTable
from vedur.pipeline.stage.tables import stage_name
from vedur.sql import query

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


class NeedsRowByRow(Exception):
    """The net changes of this table cannot be composed; replay its events one by one."""


@dataclass
class Merged:
    """What became of one table's changes."""

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

    text: str  # without one there is nothing to do, and all rows count
    counts: str  # a field of `Merged`
    of: int | None = None  # so many should be there: the others are missing

    def done(self, answer: Any) -> Merged:
        """What the server's answer amounts to; `merge_update_latest` tells both numbers."""
        if isinstance(answer, int):
            changed, of = answer, self.of
        else:
            ((of, changed),) = answer
        missing = of - changed if of is not None else 0
        return Merged(**{self.counts: changed, "missing": missing})


@dataclass
class TableMerge:
    """One table of one batch; `after` is the event of its last truncate."""

    db: Database
    table: StagedTable
    slot: int
    slices: list[int]
    after: int = 0

    def __post_init__(self) -> None:
        self.spec: TableSpec = self.table.spec
        self.kinds: Counter[tuple[str, int]] = Counter(self.table.kinds)
        self.position = {c.name: f"c{i}" for i, c in enumerate(self.spec.stage_columns)}
        if self.table.parts:
            self.slices = self.table.slices

    def run(self) -> Merged:
        """Merge; raises `NeedsRowByRow` before anything was written."""
        if self.table.rows > ANALYZE_ROWS:
            self._run("analyze")
        self._check()
        if self.after:
            self._count()
        alike = self._alike()
        parts: list[Part] = []
        if alike == "U" and self.table.rows > LATEST_ROWS:
            parts = self._in_order()
            alike = "" if parts else alike
        elif not alike:
            parts = self._composed()
        if self.spec.condition:
            self._filter()
        if self._total("N") and self.db.value(self._text("existing")):
            raise NeedsRowByRow
        try:
            with self.db.transaction():
                steps = [self._latest()] if alike == "U" else self._steps_of(parts)
                return self._run_checked(steps)
        except DatabaseError as error:
            if error.sqlstate not in _COLLISIONS or not self._total("U"):
                raise
            log.debug("%s: changes collide in passing, rows are taken out first", self.spec.name)
            if alike:
                self._fold()
            with self.db.transaction():
                return self._run_checked(self._steps_of(parts, reinsert=True))

    def known_steps(self) -> list[Step]:
        """All it takes, where few rows are staged and nothing must be asked first; else none."""
        if self.table.rows > FEW_CHANGES or self.after or self.spec.condition:
            return []
        if self.spec.may_repeat(self.table.keys):
            return []
        if any(kind not in "IUDP" for kind, _ in self.kinds):
            return []
        alike = self._alike()
        if alike == "U":
            return [self._latest()]
        parts = [] if alike else self._orderable()
        if not alike and (not _apart(parts) if parts else self.table.needs_fold):
            return []
        return self._steps_of(parts)

    def clear_way(self) -> None:
        """Rows that an insert would find go first: the events know better."""
        self._require_single()
        self._run("merge_clear")

    def _composed(self) -> list[Part]:
        """Parts to merge one after the other; none where all that is staged is one part now."""
        parts = self._in_order()
        if not parts and self.table.needs_fold:
            self._fold()
        self._require_composed()  # a task may have found that already
        return parts

    def _require_composed(self) -> None:
        if any(kind in "X!" for kind, _ in self.kinds):
            raise NeedsRowByRow

    def _alike(self) -> str:
        """The kind of all changes in several parts, if one statement can take them as they are.

        Inserts can, and so can updates of the same columns: whatever the order of their parts,
        the last one of a key is all that counts (`merge_update_latest`).
        """
        plain = self.spec.canonical(self.table.keys) and not self.spec.condition and not self.after
        if not plain or len(self.table.parts) < 2:
            return ""
        marks = [mark for mark, count in self.kinds.items() if count]
        if all(kind == "I" for kind, _ in marks):
            return "I"
        updates = len(marks) == 1 and marks[0][0] == "U" and not self._identity_in_the_way()
        return "U" if updates else ""

    def _in_order(self) -> list[Part]:
        """Parts that can be merged one after the other like batches; none if they cannot.

        A fold rewrites all that is staged (0.95 s of CPU for 190,000 rows, where merging them
        takes 0.75 s); in order only the keys that are in several parts cost something. It needs
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
        """Several parts in the order of their first events, if they are such that order helps."""
        parts = sorted(self.table.parts, key=lambda p: p.first)
        plain = self.spec.canonical(self.table.keys) and not self.spec.condition and not self.after
        if not plain or not 1 < len(parts) <= MAX_PARTS:
            return []
        return [] if any(kind not in "IUDP" for kind, _ in self.kinds) else parts

    def _interleaved(self, earlier: list[Part], part: Part, reached: int) -> bool:
        keys = [self.position[k] for k in self.table.keys]
        return bool(
            self.db.value(
                self._text(
                    "interleaved",
                    earlier=", ".join(str(p.slice) for p in earlier),
                    part=part.slice,
                    first=part.first,
                    reached=reached,
                    same=" and ".join(f"a.{k} = b.{k}" for k in keys),
                )
            )
        )

    def _steps_of(self, parts: list[Part], reinsert: bool = False) -> list[Step]:
        """The statements for all that is staged, or for some parts one after the other."""
        reinsert = reinsert or self._identity_in_the_way()
        if not parts:
            return self._steps(reinsert)
        slices, kinds = self.slices, self.kinds
        steps = []
        try:
            for part in parts:
                self.slices, self.kinds = [part.slice], part.kinds
                steps += self._steps(reinsert)
        finally:
            self.slices, self.kinds = slices, kinds
        return steps

    def _run_checked(self, steps: list[Step]) -> Merged:
        """Run steps; a key that names several rows before or after them needs to be told which
        event it is. Only keys that the server does not check itself are looked at."""
        self._require_single()
        done = self._run_steps(steps)
        self._require_single()
        return done

    def _require_single(self) -> None:
        if self.spec.may_repeat(self.table.keys) and self.db.value(self._text("doubled")):
            raise NeedsRowByRow

    def _run_steps(self, steps: list[Step]) -> Merged:
        return _counted(steps, iter(self.db.each(_texts(steps))))

    def _check(self) -> None:
        """All that was announced is there, and the truncate cuts no net change in two.

        A truncate is seen by the task of its own slice. Another slice may hold an older
        transaction that wrote the same key on both sides of it.
        """
        self.require(self.db.one(self.counting))

    @property
    def counting(self) -> str:
        """The statement whose answer `require` wants."""
        listed = ", ".join(map(str, self.slices))
        return self._text("staged", slices=listed, after=self.after)

    def require(self, found: Any) -> None:
        """See `_check`."""
        if found.n != self.table.rows:
            raise StaleStage(
                f'table "{self.spec.name}": {found.n} of {self.table.rows} staged changes are '
                "there; the batch must be staged again"
            )
        if self.after and found.astride:
            raise NeedsRowByRow

    def _steps(self, reinsert: bool) -> list[Step]:
        steps = []
        if self._total("D") or self._total("P"):
            steps.append(Step(self._text("merge_delete"), "deleted"))
        for shape, columns in self.table.shapes.items():
            count = self.kinds["U", shape]
            if not count:
                continue
            text = self._reinsert(shape, columns) if reinsert else self._update(shape, columns)
            steps.append(Step(text, "updated", None if self.spec.condition and text else count))
            if self.spec.condition:
                text = self._insert(shape, columns, "merge_insert_missing")
                steps.append(Step(text, "inserted"))
        for shape, columns in self.table.shapes.items():
            if self.kinds["I", shape] or self.kinds["P", shape]:
                steps.append(Step(self._insert(shape, columns), "inserted"))
        return steps

    def _sets(self, columns: tuple[str, ...]) -> str:
        return ", ".join(
            f"{quote_ident(c)} = s.{self.position[c]}" for c in columns if c not in self.table.keys
        )

    def _update(self, shape: int, columns: tuple[str, ...]) -> str:
        sets = self._sets(columns)
        # a table that is all key: an update says nothing new
        return self._text("merge_update", shape=shape, sets=sets) if sets else ""

    def _latest(self) -> Step:
        ((shape, columns),) = ((s, c) for s, c in self.table.shapes.items() if self.kinds["U", s])
        sets = self._sets(columns)
        if not sets:
            return Step("", "updated", self.kinds["U", shape])
        types = self.spec.by_name
        # Whatever the order is, it need not be that of a language.
        keys = ", ".join(
            f's.{self.position[k]} collate "C"' if types[k].text else f"s.{self.position[k]}"
            for k in self.table.keys
        )
        text = self._text("merge_update_latest", shape=shape, sets=sets, keys=keys)
        return Step(text, "updated")

    def _insert(self, shape: int, columns: tuple[str, ...], name: str = "merge_insert") -> str:
        return self._text(
            name,
            shape=shape,
            columns=", ".join(map(quote_ident, columns)),
            values=", ".join(f"s.{self.position[c]}" for c in columns),
        )

    def _reinsert(self, shape: int, columns: tuple[str, ...]) -> str:
        """Columns that the events do not have keep the value of the row taken out."""
        kept = [c.name for c in self.spec.stage_columns if c.name not in columns]
        returning = [f"s.{self.position[c]} as n{i}" for i, c in enumerate(columns)]
        returning += [f"d.{quote_ident(c)} as k{i}" for i, c in enumerate(kept)]
        return self._text(
            "merge_reinsert",
            shape=shape,
            returning="".join(f", {r}" for r in returning),
            columns=", ".join(map(quote_ident, (*columns, *kept))),
            values=", ".join(
                [f"n{i}" for i in range(len(columns))] + [f"k{i}" for i in range(len(kept))]
            ),
        )

    def _identity_in_the_way(self) -> bool:
        """GENERATED ALWAYS AS IDENTITY accepts an inserted value, but no update of it."""
        return any(
            c.identity_always and c.name not in self.table.keys for c in self.spec.stage_columns
        )

    def _fold(self) -> None:
        if self.table.chunks == 1 and not self.db.value(self._text("has_duplicates")):
            return
        self._rewrite("fold")
        self._require_composed()

    def _filter(self) -> None:
        """See the changes through the table's condition."""
        places = self.position.items()
        self._rewrite(
            "filter",
            condition=self.spec.condition,
            named=", ".join(f"s.{place} as {quote_ident(name)}" for name, place in places),
            alias=self.spec.alias,
        )

    def _rewrite(self, name: str, **words: object) -> None:
        """Put what is staged in another form under a slice number of its own."""
        target = secrets.randbits(62)
        places = range(len(self.position))
        with self.db.transaction():  # a condition can fail, and the caller goes on from there
            self._run(
                name,
                target=target,
                columns="".join(f", c{i}" for i in places),
                values="".join(f", f.c{i}" for i in places),
                **words,
            )
        self.slices, self.after = [target], 0
        self._count()

    def _count(self) -> None:
        rows = self.db.query(self._text("kinds"))
        self.kinds = Counter({(r.kind, r.shape): r.n for r in rows})

    def _total(self, kind: str) -> int:
        return sum(n for (k, _), n in self.kinds.items() if k == kind)

    def _run(self, name: str, **words: object) -> int:
        return self.db.execute(self._text(name, **words))

    def _text(self, name: str, **words: object) -> str:
        chosen = f"s.slice in ({', '.join(map(str, self.slices))})"
        if self.after:
            chosen += f" and s.ev_first > {self.after}"
        keys = [self.position[k] for k in self.table.keys]
        return query("replay", name).format(
            **{
                "only": self.spec.only,
                "dest": self.spec.dest,
                "stage": stage_name(self.spec, self.slot),
                "chosen": chosen,
                "keys": ", ".join(keys),
                "own_keys": ", ".join(f"s.{k}" for k in keys),
                "match": " and ".join(
                    f"d.{quote_ident(k)} = s.{p}"
                    for k, p in zip(self.table.keys, keys, strict=True)
                ),
                **words,
            }
        )


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
    """What steps have done; each that has a statement takes an answer."""
    done = Merged()
    for step in steps:
        done.add(step.done(next(answers) if step.text else step.of))
    return done
