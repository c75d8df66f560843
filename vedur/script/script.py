"""What a script of `execute` says about itself, and what may be in it; pure.

Header lines before the first statement: `--*-- Key: value, value,` (a trailing comma continues on
the next such line; a line with nothing behind `--*--` is passed over). Keys say where the script
runs: on nodes that have all the things named. A script is one transaction, so `begin` and `commit`
around it are taken out, and anything that would end the transaction, or cannot run in one, is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import postgast

from vedur.change.attrs import encode_attrs
from vedur.errors import UsageError

_HEADER = re.compile(r"^\s*--\*--\s*(.*?)\s*$")
_KEY = re.compile(r"^([A-Za-z][\w-]*)\s*:\s*(.*)$")
#: A function without a number is one without arguments, as upstream reads it.
_FUNCTION = re.compile(r"^[^()]+(\(\d+\))?$")

LOCAL_KEYS = ("local-table", "local-sequence", "local-destination")
#: Where several sets come together in one database: the script is run for each of them.
PER_PART = "per-part"
NEED_KEYS = ("need-table", "need-sequence", "need-function", "need-schema", "need-view")

#: Statements that PostgreSQL refuses inside a transaction, or that end it.
_OUTSIDE = {
    "VacuumStmt": "VACUUM",
    "CreatedbStmt": "CREATE DATABASE",
    "DropdbStmt": "DROP DATABASE",
    "CreateTableSpaceStmt": "CREATE TABLESPACE",
    "DropTableSpaceStmt": "DROP TABLESPACE",
    "AlterSystemStmt": "ALTER SYSTEM",
    "CreateSubscriptionStmt": "CREATE SUBSCRIPTION",
    "DropSubscriptionStmt": "DROP SUBSCRIPTION",
}
_WRAPPING = ("TRANS_STMT_BEGIN", "TRANS_STMT_START", "TRANS_STMT_COMMIT")

Attrs = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Script:
    """A script ready to run: statements without the transaction around them."""

    text: str
    statements: tuple[str, ...]
    attrs: Attrs

    @property
    def encoded_attrs(self) -> str | None:
        """The attributes as the contract stores them; None where there are none."""
        return encode_attrs({key: ",".join(values) for key, values in self.attrs.items()})


def parse_attrs(text: str) -> dict[str, tuple[str, ...]]:
    """Return the header of a script. Raises `UsageError` for a key that does not exist."""
    found: dict[str, list[str]] = {}
    key = ""
    for line in text.splitlines():
        if not line.strip():
            continue
        if not line.lstrip().startswith("--"):
            break
        header = _HEADER.match(line)
        if not header:
            continue
        words = header[1]
        if not words:
            continue  # a value that a comma left open goes on behind it
        if not key:
            match = _KEY.match(words)
            if not match:
                raise UsageError(
                    f'cannot read header line "{line.strip()}": write --*-- Key: value'
                )
            key, words = match[1].lower(), match[2]
            if key not in (*LOCAL_KEYS, *NEED_KEYS, PER_PART):
                raise UsageError(f"Invalid key: {match[1]}")
        values = [value.strip() for value in words.split(",")]
        found.setdefault(key, []).extend(value for value in values if value)
        key = key if words.endswith(",") else ""
    for name in found.get("need-function", ()):
        if not _FUNCTION.match(name):
            raise UsageError(
                f'Need-Function expects name or name(number of arguments), got "{name}"'
            )
    if found.get(PER_PART, ["yes"]) != ["yes"]:
        raise UsageError("Per-Part expects yes, or leave it out")
    return {name: tuple(values) for name, values in found.items()}


def known_as(name: str, queue: str, attrs: Mapping[str, tuple[str, ...]]) -> str:
    """Return the name by which a node that is not the root remembers a script. Pure.

    A script of this name and text runs once in a database, whichever set brings it; one that is
    meant for each part is remembered with the queue that brought it.
    """
    return f"{name} [{queue}]" if PER_PART in attrs else name


def parse_script(text: str) -> Script:
    """Read a script. Raises `UsageError` for what cannot be parsed or cannot be atomic."""
    attrs = parse_attrs(text)
    # placeholders are no SQL; a plain name of the same length keeps all positions
    parseable = re.sub(r"@([\w.]+)@", lambda m: "_" + m[1] + "_", text) if attrs else text
    try:
        tree = postgast.parse(parseable)
    except postgast.PgQueryError as error:
        raise UsageError(f"script cannot be parsed: {error}") from None
    kept = [statement for node, statement in _split(tree, text) if _check(node, statement)]
    if len(kept) == len(tree.stmts):
        return Script(text, tuple(kept), attrs)
    header = "".join(f"{line}\n" for line in text.splitlines() if _HEADER.match(line))
    body = "".join(f"{_without_header(statement)};\n" for statement in kept)
    return Script(header + body, tuple(kept), attrs)


def without_transaction(script: str) -> tuple[str, ...]:
    """Return the statements of a script that has run on the root, without BEGIN, COMMIT and the
    like.

    Syntax that is newer than the parser stays whole: the server decides.
    """
    try:
        tree = postgast.parse(script)
    except postgast.PgQueryError:
        return (script,)
    return tuple(
        statement
        for node, statement in _split(tree, script)
        if node.WhichOneof("node") != "transaction_stmt"
    )


def _split(tree: Any, text: str) -> Iterator[tuple[Any, str]]:
    """Yield each statement's node and its own text."""
    data = text.encode()  # positions are bytes
    for raw in tree.stmts:
        end = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(data)
        yield raw.stmt, data[raw.stmt_location : end].decode().strip()


def _without_header(statement: str) -> str:
    lines = [line for line in statement.splitlines() if not _HEADER.match(line)]
    return "\n".join(lines).strip()


def _check(node: Any, statement: str) -> bool:
    """Is the statement to be kept? One that only opens or closes the transaction is not; raises for
    one that cannot be in a transaction."""
    field = node.WhichOneof("node")
    inner = getattr(node, field)
    kind = type(inner).__name__
    if kind == "TransactionStmt":
        word = _enum(inner, "kind")
        if word in _WRAPPING and not inner.chain:
            return False
        raise _not_atomic(_shown(statement))
    if kind in _OUTSIDE:
        # VACUUM and ANALYZE share a node
        if kind != "VacuumStmt" or inner.is_vacuumcmd:
            raise _not_atomic(_OUTSIDE[kind])
    elif getattr(inner, "concurrent", False) or _concurrently(inner):
        raise _not_atomic(_shown(statement))
    return True


def _concurrently(inner: Any) -> bool:
    params = getattr(inner, "params", None)
    if type(inner).__name__ != "ReindexStmt" or not params:
        return False
    return any(item.def_elem.defname == "concurrently" for item in params)


def _enum(message: Any, field: str) -> str:
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)


def _shown(statement: str) -> str:
    lines = [line for line in statement.splitlines() if not line.lstrip().startswith("--")]
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _not_atomic(what: str) -> UsageError:
    return UsageError(
        f'"{what}" cannot be part of a script: a script is one transaction on every node; '
        "run it by hand on each"
    )
