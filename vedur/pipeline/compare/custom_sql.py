"""`compare_sql`: the statement of an operator that says what is compared. Pure."""

from __future__ import annotations

import re

from vedur.names import parse_name, quote_ident

#: The statement of the contract, which the engine answers slice by slice with the same number.
_STANDARD = re.compile(
    r"select count\(1\) as cnt, sum\(hashtext\((t\.\*|\(?_COLS_\)?)::text\)(::bigint)?\) as chksum"
    r" from only _TABLE_( t)?"
)
_TABLE = re.compile(
    r"(?:\bonly\s+)?_TABLE_(\s+(?:as\s+)?(?!where\b|group\b|order\b|limit\b)\w+)?", re.I
)


def is_standard(compare_sql: str) -> bool:
    """Tell whether it is the statement whose number the engine gives by itself."""
    return bool(_STANDARD.fullmatch(" ".join(compare_sql.split())))


def custom_sql(
    text: str,
    table: str,
    columns: tuple[str, ...],
    condition: str,
    names: tuple[str, ...] = (),
) -> str:
    """Return an operator's `compare_sql` with its placeholders filled in.

    A table with a filter becomes a subquery under the alias that stands there, so the statement
    sees the rows that should be there and nothing else. With a column list (`names`, those of
    the target) it sees these columns and no others, under the same names on both sides.
    """
    name = parse_name(table).quoted
    filtered = bool(names) or condition != "(true) and (true)"
    chosen = "*"
    if names:
        pairs = zip(columns, map(quote_ident, names), strict=True)
        chosen = ", ".join(f"{expression} as {column}" for expression, column in pairs)
        columns = tuple(map(quote_ident, names))

    def table_text(found: re.Match[str]) -> str:
        alias = found[1] or ""
        if not filtered:
            return found[0].replace("_TABLE_", name)
        inner = f"(select {chosen} from only {name} as t where {condition})"
        return f"{inner}{alias or ' as t'}"

    listed = "(" + ", ".join(columns) + ")"
    return (
        _TABLE.sub(table_text, text).replace("(_COLS_)", listed).replace("_COLS_", f"row{listed}")
    )
