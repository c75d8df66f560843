"""The SQL text of Vedur and its loader; no connection is opened here.

Two kinds of text live below this directory:

* schemas: `<schema>/install.list` names the files that make up a schema, in order. `tables.sql`
  runs on a fresh install only; everything else is idempotent and runs on upgrades too.
* queries: `queries/<area>.sql` holds named statements that the Python code runs, each introduced
  by a line `-- name: the_name` and a line saying what it answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from vedur.errors import InternalError

#: In the order in which they depend on each other.
SCHEMAS = ("pgq", "pgq_ext", "pgq_node", "londiste", "vedur")

#: Steps of this kind create what must exist once; an installed schema already has it.
_ONCE = "tables.sql"

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """One file of a schema: where it came from and what it says."""

    path: str
    text: str

    @property
    def once(self) -> bool:
        """Return True for text that only a fresh install may run."""
        return self.path.rsplit("/", 1)[-1] == _ONCE


def _root() -> Traversable:
    return files(__name__)


@cache
def schema_files(schema: str) -> tuple[SqlFile, ...]:
    """Read the files of a schema in install order."""
    base = _root() / schema
    result = []
    for line in (base / "install.list").read_text("utf-8").splitlines():
        entry = line.partition("#")[0].strip()
        if entry:
            result.append(SqlFile(f"{schema}/{entry}", (base / entry).read_text("utf-8")))
    return tuple(result)


@cache
def upgrade_files() -> tuple[SqlFile, ...]:
    """Read the upgrade steps, named `<version>_<serial>_<schema>_<words>.sql`; the installer orders
    them."""
    base = _root() / "upgrades"
    if not base.is_dir():
        return ()
    names = sorted(entry.name for entry in base.iterdir() if entry.name.endswith(".sql"))
    return tuple(SqlFile(f"upgrades/{n}", (base / n).read_text("utf-8")) for n in names)


@cache
def _queries(area: str) -> dict[str, str]:
    text = (_root() / "queries" / f"{area}.sql").read_text("utf-8")
    parts = _NAME.split(text)
    return dict(zip(parts[1::2], (p.strip() for p in parts[2::2]), strict=True))


def query(area: str, name: str) -> str:
    """Return the statement `name` of `queries/<area>.sql`."""
    try:
        return _queries(area)[name]
    except KeyError:
        raise InternalError(f'BUG: no query "{name}" in sql/queries/{area}.sql') from None
