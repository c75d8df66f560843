"""The rules of our SQL tree that no linter knows (CONTRIBUTING.md, "SQL")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vedur
from vedur import db as vdb
from vedur.sql import SCHEMAS, schema_files

ROOT = Path(vedur.__file__).parent / "sql"
CREATED = re.compile(r"create\s+(?:or\s+replace\s+)?function\s+([a-z_]+\.[a-z0-9_]+)", re.I)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_file_is_listed_once(schema: str) -> None:
    listed = [file.path for file in schema_files(schema)]
    on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / schema).rglob("*.sql")}
    assert sorted(listed) == sorted(on_disk)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_function_file_is_named_as_it_is_called(schema: str) -> None:
    for file in schema_files(schema):
        if "/functions/" in file.path or "/triggers/" in file.path:
            created = set(CREATED.findall(file.text))
            assert created == {Path(file.path).stem}, file.path


def test_security_definer_has_a_fixed_search_path(db: vdb.Database) -> None:
    loose = db.query(
        """
        select p.oid::regprocedure::text as name
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = any (%s) and p.prosecdef
          and not exists (select 1 from unnest(p.proconfig) c where c like 'search_path=%%')
        """,
        [list(SCHEMAS)],
    )
    assert loose == []


def test_every_function_says_what_it_does(db: vdb.Database) -> None:
    silent = db.query(
        """
        select p.oid::regprocedure::text as name
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = any (%s)
          and p.prosrc !~ '^[[:space:]]*(begin|declare)?[^;]*--'
        """,
        [list(SCHEMAS)],
    )
    assert silent == []
