"""The columns of the source and what PostgreSQL's types are in Spark.

Without `table` a row is an event as the queue has it. With `table` it is a change of that table's
rows: who and when in front, then the table's own columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import types as T

from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.names import parse_name
from vedur.sql import query

#: Name, Spark type, meaning; in the order of the rows.
EVENT_COLUMNS: tuple[tuple[str, T.DataType, str], ...] = (
    (
        "_change_type",
        T.StringType(),
        "`insert`, `update_postimage`, `delete`, `truncate`; null for events not about rows",
    ),
    ("_commit_version", T.LongType(), "the tick that made the event visible"),
    ("_commit_timestamp", T.TimestampType(), "when that tick was written"),
    ("ev_id", T.LongType(), "number of the event: the order of changes"),
    ("ev_txid", T.LongType(), "the transaction that wrote it"),
    ("ev_time", T.TimestampType(), "when it was written"),
    ("table_name", T.StringType(), "the table, `schema.name`; null for events of no table"),
    ("ev_type", T.StringType(), "type of the event as the queue has it"),
    ("ev_data", T.StringType(), "its payload as the queue has it"),
    ("ev_extra1", T.StringType(), "extra field, for triggers the name of the table"),
    ("ev_extra2", T.StringType(), "extra field, with `backup` the old row"),
    ("ev_extra3", T.StringType(), "extra field"),
    ("ev_extra4", T.StringType(), "extra field"),
)
EVENT_TYPES = {name: kind for name, kind, _ in EVENT_COLUMNS}

#: Those that stand before a table's own columns.
LEADING = ("_change_type", "_commit_version", "_commit_timestamp", "ev_id", "ev_txid")

SIMPLE: dict[str, T.DataType] = {
    "smallint": T.ShortType(),
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "oid": T.LongType(),
    "real": T.FloatType(),
    "double precision": T.DoubleType(),
    "boolean": T.BooleanType(),
    "date": T.DateType(),
    "bytea": T.BinaryType(),
    "timestamp without time zone": T.TimestampNTZType(),
    "timestamp with time zone": T.TimestampType(),
}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_PRECISION = re.compile(r"\(\d+\)")

#: What `convert` can make of text.
CONVERTIBLE = (T.StringType, T.DecimalType, *(type(t) for t in SIMPLE.values()))


def spark_type(type_name: str) -> T.DataType:
    """Return the Spark type that holds every value of a type, or nearly; text for all that has
    none.

    Dates before year 1 or after 9999, `infinity` and the NaN of a numeric have no place in Spark:
    for them a schema that says `string` can be given.
    """
    numeric = _NUMERIC.fullmatch(type_name)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2])
        return T.DecimalType(precision, scale) if scale <= precision <= 38 else T.StringType()
    return SIMPLE.get(_PRECISION.sub("", type_name), T.StringType())


def event_schema() -> T.StructType:
    """Return the schema of rows without option `table`."""
    return T.StructType([T.StructField(name, kind) for name, kind, _ in EVENT_COLUMNS])


def load_columns(db: Database, table: str) -> dict[str, str]:
    """Read the table's columns and their types as SQL writes them; empty if there is no such
    table."""
    params = {"names": [table], "relations": [parse_name(table).quoted]}
    rows = db.query(query("replay", "table_columns"), params)
    return {row.column_name: row.type_name for row in rows}


def table_schema(table: str, columns: dict[str, str], prefix: str) -> T.StructType:
    """Return the schema of rows with option `table`, derived from the table as it is now."""
    if not columns:
        raise StateError(
            f'table "{table}" does not exist in this database: check the name, '
            "or give the columns with .schema(...)"
        )
    _refuse_clashes(table, prefix, columns)
    fields = [T.StructField(name, EVENT_TYPES[name]) for name in LEADING]
    fields += [T.StructField(prefix + n, spark_type(t)) for n, t in columns.items()]
    return T.StructType(fields)


def _refuse_clashes(table: str, prefix: str, names: Iterable[str]) -> None:
    """Raise where two names are one for Spark: its names are not case-sensitive, and neither is
    this."""
    seen = {name.lower(): "the source's own" for name in EVENT_TYPES}
    for name in names:
        at = (prefix + name).lower()
        if at not in seen:
            seen[at] = f'"{name}"'
            continue
        advice = "give option columnPrefix" if not seen[at].startswith('"') else "give .schema(...)"
        raise StateError(
            f'column "{name}" of table "{table}" has the name of {seen[at]} column for Spark: '
            f"{advice}"
        )


def check_schema(
    schema: T.StructType, table: str | None, columns: dict[str, str] | None, prefix: str
) -> None:
    """Raise unless a schema that the user gave fits: every column must be ours or the table's, of a
    type we make.

    `columns` are the table's, None if they are not known here.
    """
    for field in schema.fields:
        name, kind = field.name, field.dataType
        own = EVENT_TYPES.get(name)
        if own is not None:
            if own != kind:
                raise UsageError(
                    f'column "{name}" is {own.simpleString()}: the schema says '
                    f"{kind.simpleString()}, cast it after reading"
                )
            continue
        if table is None:
            raise UsageError(
                f'column "{name}" is none of an event: give option "table" for columns of a table'
            )
        if not isinstance(kind, CONVERTIBLE):
            raise UsageError(
                f'column "{name}" cannot be read as {kind.simpleString()}: declare it as string '
                "and use Spark's functions on it"
            )
        if columns and (not name.startswith(prefix) or name[len(prefix) :] not in columns):
            raise UsageError(f'column "{name}" is not in table "{table}": correct the schema')
