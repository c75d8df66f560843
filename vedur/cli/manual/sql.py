"""The reference page of SQL functions, made from the files in vedur/sql and their comments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vedur.sql import SCHEMAS, schema_files

_HEAD = """# SQL functions

What a DBA, a consumer or a program may call, generated from the comments in `vedur/sql` by
`python -m vedur.cli.manual`. Functions that answer with `ret_code` and `ret_note` use 2xx for done,
3xx for nothing to do or a warning, 4xx for refused. [Privileges](privileges.md) tells which role
may call which.
"""

_ABOUT = {
    "pgq": "The queue: events, ticks, batches, consumers. As PgQ 3.5 has it.",
    "pgq_ext": "For consumers in another database: which batch or event was done.",
    "pgq_node": "Sets of databases that carry the same queue: root, branches, leaves.",
    "londiste": "Tables and sequences of a set. As Londiste 3 has it.",
    "vedur": "What only Vedur has. The commands call these; so may you, but no other program does.",
}

_CREATE = re.compile(
    r"create\s+or\s+replace\s+function\s+(?P<name>[a-z_]+\.[a-z0-9_]+)\s*"
    r"(?P<rest>\(.*?)\s*\blanguage\b.*?\bas\s+\$(?P<tag>\w*)\$\s*\n(?P<body>.*?)\$(?P=tag)\$",
    re.DOTALL | re.IGNORECASE,
)
_RULE = re.compile(r"^-{5,}$")


@dataclass(frozen=True)
class SqlFunction:
    """A function as its file declares and describes it."""

    name: str
    signature: str
    comment: tuple[str, ...]


def sql_functions(schema: str) -> list[SqlFunction]:
    """List the functions of a schema that others may call, by name; not those in `internal/`."""
    functions = []
    for file in schema_files(schema):
        if "/internal/" in file.path:
            continue
        for match in _CREATE.finditer(file.text):
            functions.append(
                SqlFunction(match["name"], _signature(match["rest"]), _comment(match["body"]))
            )
    return sorted(functions, key=lambda f: f.name)


def _signature(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("( ", "(").replace(" )", ")").strip()


def _comment(body: str) -> tuple[str, ...]:
    """Return the lines of the comment that a function's body begins with."""
    lines: list[str] = []
    for line in body.splitlines():
        comment = line.lstrip()
        if not comment.startswith("--"):
            break
        text = comment[2:].removeprefix(" ").rstrip()
        if not _RULE.match(text.strip()):
            lines.append(text)
    return tuple(lines)


def sql_page() -> str:
    """Return the text of docs/reference/sql-functions.md."""
    parts = [_HEAD]
    for schema in SCHEMAS:
        functions = sql_functions(schema)
        if functions:
            parts.append(f"## {schema}\n\n{_ABOUT[schema]}\n")
            parts += [
                _section(name, functions) for name in dict.fromkeys(f.name for f in functions)
            ]
    return "\n".join(parts)


def _section(name: str, functions: list[SqlFunction]) -> str:
    """Format a function and its overloads under one heading."""
    blocks = [f"### {name}\n"]
    for function in functions:
        if function.name == name:
            text = "\n".join(function.comment).strip("\n")
            blocks.append(f"```text\n{name}{function.signature}\n\n{text}\n```\n")
    return "\n".join(blocks)
