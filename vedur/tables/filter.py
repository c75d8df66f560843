"""What of a table comes to this node: which rows, by a condition, and which columns. Pure.

A condition is one SQL expression over columns of the table, by their names on the node that has
the condition; PostgreSQL's own parser reads it. It may look at its row and at nothing else: a
subquery would change its answer without a change of the row. For use on the provider, and under an
alias, the column references are replaced where they stand; the rest of the text stays as it was
written.

A column list is written `a,b,c=new_name`: the provider's name, and after `=` the name on this node.
A name that holds a comma, an equals sign, a quote or blanks at its ends stands in double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import postgast

from vedur.errors import UsageError, first_line
from vedur.names import quote_ident
from vedur.script.parse_tree import messages

_HEAD = "select 1 where ("


@dataclass(frozen=True)
class Reference:
    """A column as it stands in the text: bytes [start, end), and what the table is called."""

    start: int
    end: int
    column: str
    table: str | None


@dataclass(frozen=True)
class Condition:
    """A condition that can be read; `functions` are called by name, the last part only."""

    text: str
    references: tuple[Reference, ...]
    functions: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it looks at, each once, in their order."""
        return tuple(dict.fromkeys(r.column for r in self.references))

    def written(self, names: Mapping[str, str] | None = None, alias: str | None = None) -> str:
        """Return the condition with other column names, and columns of `alias`."""
        data = self.text.encode()
        parts, at = [], 0
        head = f"{alias}." if alias else ""
        for reference in self.references:
            name = (names or {}).get(reference.column, reference.column)
            parts += [data[at : reference.start].decode(), head + quote_ident(name)]
            at = reference.end
        return "".join([*parts, data[at:].decode()])


def parse_condition(text: str, tables: Collection[str] | None = None) -> Condition:
    """Read a condition; `tables` are names by which it may call the table, None for any."""
    try:
        # a line of its own, so that a comment at the end cannot swallow the bracket
        tree = postgast.parse(f"{_HEAD}{text}\n)")
        postgast.parse(f"select 1 where {text}")  # brackets that are the condition's own
    except postgast.PgQueryError as error:
        raise UsageError(f'condition "{text}" cannot be read: {first_line(error)}') from None
    statement = tree.stmts[0].stmt.select_stmt if len(tree.stmts) == 1 else None
    fields = {f.name for f, _ in statement.ListFields()} if statement is not None else set()
    if statement is None or fields - {"limit_option", "op"} != {"target_list", "where_clause"}:
        raise UsageError(f'condition "{text}" is more than one expression')
    if len(statement.target_list) != 1:
        raise UsageError(f'condition "{text}" is more than one expression')
    return _read(text, statement.where_clause, tables)


def _read(text: str, root: Any, tables: Collection[str] | None) -> Condition:
    references: list[Reference] = []
    functions: set[str] = set()
    tokens = _tokens(text)
    for node in messages(root):
        kind = type(node).__name__
        if kind == "SubLink":
            raise UsageError(
                f'condition "{text}" has a subquery: it may look at its own row only, because '
                "nothing tells this node when other rows change"
            )
        if kind == "ParamRef":
            raise UsageError(f'condition "{text}" has a parameter')
        if kind == "FuncCall":
            functions.add(node.funcname[-1].string.sval)
        if kind == "ColumnRef":
            references.append(_reference(text, node, tokens, tables))
    return Condition(text, tuple(sorted(references, key=lambda r: r.start)), frozenset(functions))


def _reference(
    text: str, node: Any, tokens: Mapping[int, int], tables: Collection[str] | None
) -> Reference:
    names = [f.string.sval for f in node.fields if f.HasField("string")]
    if len(names) != len(node.fields):
        raise UsageError(f'condition "{text}" uses *: name the columns')
    if len(names) > 2 or (len(names) == 2 and tables is not None and names[0] not in tables):
        raise UsageError(
            f'condition "{text}": "{".".join(names)}" is no column of the table: '
            "write the column alone"
        )
    start = int(node.location) - len(_HEAD)
    words = sorted(place for place in tokens if place >= start)[: 2 * len(names) - 1]
    return Reference(start, tokens[words[-1]], names[-1], names[0] if len(names) == 2 else None)


def _tokens(text: str) -> dict[int, int]:
    """Return where words of the text begin and end, in bytes; comments are none."""
    scanned = postgast.scan(f"{_HEAD}{text}\n)")
    comments = ("SQL_COMMENT", "C_COMMENT")
    found = {}
    for token in scanned.tokens:
        field = token.DESCRIPTOR.fields_by_name["token"]
        name = field.enum_type.values_by_number[token.token].name
        if name not in comments:
            found[int(token.start) - len(_HEAD)] = int(token.end) - len(_HEAD)
    return found


def columns_of(text: str | None) -> tuple[str, ...]:
    """Return the columns that a stored condition looks at; none where our parser does not know
    it."""
    try:
        return parse_condition(text).columns if text else ()
    except UsageError:
        return ()


def written(
    text: str | None, names: Mapping[str, str] | None = None, alias: str | None = None
) -> str | None:
    """Return a stored condition for use elsewhere. One that our parser does not know stays as it
    is: the server may be newer than the parser. But it stays inside the brackets that it is put
    into, because others than our commands may have stored it."""
    if not text:
        return None
    try:
        return parse_condition(text).written(names, alias)
    except UsageError:
        if names and any(here != there for here, there in names.items()):
            raise
        _require_inside(text)
        return text


def _require_inside(text: str) -> None:
    """Raise unless the text is of words that the scanner knows, has no semicolon, and brackets that
    are all its own."""
    depth = 0
    try:
        places = sorted((a, b) for a, b in _tokens(text).items() if a >= 0)
    except postgast.PgQueryError as error:
        raise UsageError(f'condition "{text}" cannot be read: {first_line(error)}') from None
    words = [text.encode()[a:b] for a, b in places]
    for word in words[:-1]:  # the last one is the bracket after it
        depth += {b"(": 1, b")": -1}.get(word, 0)
        if depth < 0 or word == b";":
            raise UsageError(f'condition "{text}" is more than one expression')
    if depth:
        raise UsageError(f'condition "{text}" has a bracket that is not closed')


# -- column lists ---------------------------------------------------------------------------------

#: (name on the provider, name here), in the order in which they were listed.
Columns = tuple[tuple[str, str], ...]

_NAME = r'"(?:[^"]|"")+"|[^",=]+'
_ITEM = re.compile(rf"\s*({_NAME})\s*(?:=\s*({_NAME})\s*)?(?:,|$)")
_PLAIN = re.compile(r'[^",=\s](?:[^",=]*[^",=\s])?')


def parse_columns(text: str) -> Columns:
    """Read a column list; a name twice on either side is an error."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or not (match[1].strip() and (match[2] is None or match[2].strip())):
            raise UsageError(
                f'column list cannot be read at "{text[at:]}": write it as a,b,c=new_name'
            )
        source = _unquoted(match[1])
        found.append((source, source if match[2] is None else _unquoted(match[2])))
        at = match.end()
    if not found:
        raise UsageError("column list is empty: write it as a,b,c=new_name")
    for side in (0, 1):
        names = [pair[side] for pair in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f'column list names "{twice}" twice')
    return tuple(found)


def format_columns(columns: Columns) -> str:
    """Return the text that `parse_columns` reads back."""
    return ",".join(
        _quoted(source) if source == here else f"{_quoted(source)}={_quoted(here)}"
        for source, here in columns
    )


def source_names(columns: Columns | None) -> Mapping[str, str] | None:
    """Return the names on the provider by names here; None where nothing is renamed or left out."""
    return None if columns is None else {here: source for source, here in columns}


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
