"""Shapes: which columns an event carries, and where each value goes in a staging table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.tables.mapping import TableSpec, shape_id


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of columns that events of a table carry, and where each goes in a staged row."""

    names: tuple[str, ...]
    local: tuple[str | None, ...]  # the name of each on this node, None if it is not replicated
    id: int
    picks: tuple[int, ...]  # for each staged column the index of its value, -1 for none
    keep: tuple[int, ...]  # indexes of values that are staged
    nested: tuple[str, ...]  # type_kind by value index
    key: tuple[int, ...] | None  # where the key columns are, None if one is missing
    unknown: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # columns of the condition that are not staged
    renamed: str | None = None  # the problem, where a column seems to have been renamed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are set, by their names on this node, in the event's order."""
        return tuple(self.local[i] or "" for i in self.keep)

    @property
    def staged_columns(self) -> tuple[int, ...] | None:
        """For each value of an event the staged column that takes it; None if not all are staged.

        Staged columns are counted from 0 and called c0, c1 and so on.
        """
        column_of = {value: column for column, value in enumerate(self.picks) if value >= 0}
        if len(column_of) != len(self.names):
            return None
        return tuple(column_of[i] for i in range(len(self.names)))


def make_shape(spec: TableSpec, names: tuple[str, ...], keys: tuple[str, ...]) -> Shape:
    """Match the columns of an event with those of the target; `keys` are names on this node."""
    local = tuple(map(spec.local, names))
    index = {name: i for i, name in enumerate(local) if name is not None}
    known = spec.by_name
    keep = tuple(i for n, i in index.items() if n in known and not known[n].generated)
    return Shape(
        names=names,
        local=local,
        id=shape_id(tuple(local[i] or "" for i in keep)),
        picks=tuple(index.get(c.name, -1) for c in spec.stage_columns),
        keep=keep,
        nested=tuple(known[n].type_kind if n in known else "" for n in local),
        key=tuple(index[k] for k in keys) if all(k in index for k in keys) else None,
        unknown=tuple(n for n in index if n not in known),
        unseen=spec.unseen({local[i] or "" for i in keep}),
        renamed=spec.renamed(index),
    )
