"""Conditions that a script carries: `local-table=a%2cb&need-schema=s`.

All met: run. None met: not for this node. Some met: nobody can say, so the worker stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from vedur.db import Database
from vedur.errors import StateError
from vedur.names import fqname, parse_name
from vedur.sql import query

_RELKINDS = {"need-table": "rp", "need-sequence": "S", "need-view": "vm"}
_LOCAL_TABLE = ("local-table", "local-destination")


@dataclass(frozen=True)
class ScriptAttrs:
    """Values by lower-case key."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> ScriptAttrs:
        """Read the urlencoded form of an event."""
        found = {}
        for part in (text or "").split("&"):
            key, _, value = part.partition("=")
            names = tuple(v.strip() for v in unquote_plus(value).split(",") if v.strip())
            if key and names:
                found[unquote_plus(key).lower()] = names
        return cls(found)

    def tables(self, local: dict[str, str]) -> list[str]:
        """Return the tables that the attributes name, by their names on this node."""
        names = [
            fqname(n) for key in (*_LOCAL_TABLE, "need-table") for n in self.values.get(key, ())
        ]
        return [local.get(name, name) for name in names]

    def substitute(self, script: str, tables: dict[str, str], sequences: set[str]) -> str:
        """Replace `@name@` of the tables and sequences that the attributes name."""
        for key in (*_LOCAL_TABLE, "local-sequence"):
            for name in self.values.get(key, ()):
                local = tables.get(fqname(name), fqname(name))
                script = script.replace(f"@{name}@", parse_name(local).quoted)
        return script


def matches(
    db: Database, attrs: ScriptAttrs, tables: dict[str, str], sequences: set[str]
) -> bool | None:
    """Tell whether the script belongs here; None if only in part."""
    answers = [
        _holds(db, key, name, tables, sequences)
        for key, names in attrs.values.items()
        for name in names
    ]
    if all(answers):
        return True
    return None if any(answers) else False


def _holds(db: Database, key: str, name: str, tables: dict[str, str], sequences: set[str]) -> bool:
    if key == "local-table":
        return fqname(name) in tables
    if key == "local-destination":
        # the set's name, as upstream: it may be registered here and its table not be there
        dest = tables.get(fqname(name))
        return dest is not None and _has_objects(db, dest, "need-table")
    if key == "local-sequence":
        return fqname(name) in sequences
    if key == "need-schema":
        return bool(db.query(query("catalog", "has_schemas"), [[name]]))
    if key == "need-function":
        function, _, count = name.partition("(")
        number = count.rstrip(")").strip() or "0"
        if not number.isdigit():
            raise StateError(
                f'the script\'s Need-Function "{name}" is not name(number of arguments): '
                "mend the script on the root, and skip this event"
            )
        return bool(
            db.value(query("catalog", "has_function"), [fqname(function.strip()), int(number)])
        )
    return key not in _RELKINDS or _has_objects(db, fqname(name), key)


def _has_objects(db: Database, name: str, key: str) -> bool:
    return bool(db.query(query("catalog", "has_objects"), [[name], list(_RELKINDS[key])]))
