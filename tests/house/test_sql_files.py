"""The rules of our SQL tree that no linter knows (CONTRIBUTING.md, "SQL")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vedur
from vedur import db as vdb
from vedur.sql import SCHEMAS, query, schema_files

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


#: Comments, quoted names, E strings (which may go on in the next line), and plain strings.
TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|"(?:[^"]|"")*"|E'(?:[^'\\]|''|\\.)*'(?:\s*\n\s*'(?:[^'\\]|''|\\.)*')*"""
    r"""|'(?:[^']|'')*'""",
    re.S,
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_no_string_depends_on_standard_conforming_strings(schema: str) -> None:
    """Functions are parsed in sessions of users, who may have it off: write E'...'."""
    for file in schema_files(schema):
        plain = [t for t in TOKEN.findall(file.text) if t.startswith("'") and "\\" in t]
        assert plain == [], file.path


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


def test_the_modules_that_a_file_of_queries_names_are_there() -> None:
    package = ROOT.parent
    for path in sorted((ROOT / "queries").glob("*.sql")):
        head = path.read_text().partition("-- name:")[0]
        for name in re.findall(r"vedur(/[\w/]+(?:[.]py)?)", head):
            assert (package / name[1:]).exists(), f"{path.name} names vedur{name}"


#: What stands before a parenthesis in a capture's text without being a function.
NOT_CALLED = {"and", "coalesce", "exists", "from", "lateral", "not", "operator", "row"}


def test_generated_capture_calls_nothing_by_its_bare_name(db: vdb.Database) -> None:
    db.execute(
        "create table t (id int, f float8, n numeric, b bytea, i interval, ts timestamptz, o bool,"
        " j jsonb, a int[], c char(3), ip inet, primary key (id, c))"
    )
    db.call("pgq.create_queue", "q")
    for format in ("json", "urlenc"):
        assert db.call("vedur.create_capture", "q", "t", format, format)[0].ret_code == 200
    sources = db.query(
        "select p.prosrc from pg_proc p join pg_trigger t on t.tgfoid = p.oid"
        " where t.tgrelid = 't'::regclass and p.prosecdef"
    )
    assert len(sources) == 2
    for (source,) in sources:
        # Literals and quoted names are no calls; a column list follows the table of an INSERT.
        text = re.sub(r"'(?:[^']|'')*'|--[^\n]*", "''", source)
        text = re.sub(r'"(?:[^"]|"")*"', "quoted", text)
        called = re.findall(r"(?<![\w.])([a-z_]\w*(?:\.\w+)*)\s*\(", text)
        bare = {name for name in called if "." not in name} - NOT_CALLED
        assert bare == set()
        assert all(
            name.startswith("pg_catalog.") for name in re.findall(r"operator\((\S+)\)", text)
        )
        assert not re.search(r"::(?!pg_catalog\.)", text)
    db.rollback()


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


def test_a_tables_key_is_chosen_by_one_rule() -> None:
    """By the installed function, and by a statement for databases that may not have it."""

    def rule(text: str) -> str:
        words = " ".join(re.sub(r"\bas k \(", "k(", text).split())
        return words[words.index("and i.indisunique") : words.index("limit 1")]

    (function,) = (f for f in schema_files("londiste") if f.path.endswith("londiste.table_key.sql"))
    assert rule(function.text) == rule(query("catalog", "table_keys"))


def test_the_key_of_a_table_is_chosen_by_one_rule() -> None:
    """A provider without our schemas is asked by a query, everybody else by the function."""
    function = (ROOT / "londiste/internal/londiste.table_key.sql").read_text("utf-8")
    texts = [" ".join(text.split()) for text in (function, query("catalog", "table_keys"))]
    rules = [re.search(r"and i\.indisunique and \(.* x\.relname limit 1", text) for text in texts]
    chosen = [
        re.search(r"select a\.attname::text from .* order by k\.nr\)", text) for text in texts
    ]
    for found in (rules, chosen):
        assert all(found)
        assert found[0][0] == found[1][0]  # type: ignore[index]
