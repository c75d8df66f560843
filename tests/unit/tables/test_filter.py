"""Column lists and conditions: read, refused, written for another side. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedur.errors import StateError, UsageError
from vedur.names import QualifiedName
from vedur.script.column_ddl import rename_columns
from vedur.tables.filter import format_columns, parse_columns, parse_condition, written
from vedur.tables.structure import ColumnDefinition, Constraint, Definition, Structure
from vedur.tables.subset import restrict

_names = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True)


@given(_names, st.data())
def test_every_column_list_comes_back(sources: list[str], data: st.DataObject) -> None:
    here = data.draw(st.permutations(sources))
    columns = tuple(zip(sources, here, strict=True))
    assert parse_columns(format_columns(columns)) == columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a, b ,c = new_name", (("a", "a"), ("b", "b"), ("c", "new_name"))),
        ('"a,b"="x=""y",d', (("a,b", 'x="y'), ("d", "d"))),
        ("Mixed Case", (("Mixed Case", "Mixed Case"),)),
    ],
)
def test_column_lists(text: str, columns: object) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize("text", ["", "a,,b", "a=b=c", "=x", '"a', "a,a", "a=x,b=x", "a= ,b"])
def test_column_lists_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError, match="column list"):
        parse_columns(text)


@pytest.mark.parametrize(
    ("text", "columns", "there"),
    [
        ("userid<1000", ("userid",), 't."u"<1000'),
        (
            "n < 10 and t.kind is not null and \"Kind\" like 'n%' -- n",
            ("n", "kind", "Kind"),
            't."n n" < 10 and t."kind" is not null and t."Kind" like \'n%\' -- n',
        ),
        (
            "lower(ü) = 'ü' and (n).x > 1 and n[1] between 1 and 2 and not t /* n */ . n",
            ("ü", "n"),
            'lower(t."ü") = \'ü\' and (t."n n").x > 1 and t."n n"[1] between 1 and 2 '
            'and not t."n n"',
        ),
        ("true", (), "true"),
    ],
)
def test_a_condition_in_other_names(text: str, columns: tuple[str, ...], there: str) -> None:
    condition = parse_condition(text, {"t"})
    assert condition.columns == columns
    assert condition.written({"n": "n n", "userid": "u"}, "t") == there


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a =", "cannot be read"),
        ("", "cannot be read"),
        ("true) or (false", "cannot be read"),
        ("true) order by (1", "cannot be read"),
        ("a, b", "cannot be read"),
        ("true; drop table x", "cannot be read"),
        ("a in (select 1)", "subquery"),
        ("exists (select 1 from x)", "subquery"),
        ("a = $1", "parameter"),
        ("t.* is null", "name the columns"),
        ("other.a = 1", "no column"),
        ("s.t.a = 1", "no column"),
    ],
)
def test_conditions_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_condition(text, {"t"})


def test_a_stored_condition_that_only_a_newer_server_reads_stays_as_it_is() -> None:
    assert written("a really new (syntax)", {"a": "a"}, "t") == "a really new (syntax)"
    assert written(None) is None
    with pytest.raises(UsageError):
        written("a really new (syntax)", {"a": "b"}, "t")


def test_definitions_follow_renamed_columns() -> None:
    names = {"id": "key", "a": "A b"}
    index = "CREATE INDEX i ON s.t USING btree (a, lower(a)) INCLUDE (id) WHERE (a > 'id'::text)"
    moved = rename_columns(index, names)
    assert moved is not None
    assert '"A b"' in moved
    assert "(key)" in moved
    assert "'id'" in moved
    assert rename_columns(index, {"id": "id", "a": "a"}) == index
    assert rename_columns(index, {"a": "a"}) is None
    fkey = "ALTER TABLE s.t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES s.u (id)"
    moved = rename_columns(fkey, {"a": "b"}, {"id": "key"})
    assert moved is not None
    assert "(b)" in moved
    assert "(key)" in moved
    assert rename_columns(fkey, None, {"x": "x"}) is None


def column(name: str, default: str | None = None, generated: str = "") -> ColumnDefinition:
    return ColumnDefinition(name, "text", False, default, "", generated, None, None)


STRUCTURE = Structure(
    table=QualifiedName("s", "t"),
    kind="r",
    owner="me",
    partition_key=None,
    options=(),
    columns=(
        column("id"),
        column("a"),
        column("secret"),
        column("up", "upper(a)", "s"),
        column("both", "(a || secret)", "s"),
    ),
    key=("id",),
    constraints=(
        Constraint("t_pkey", "p", "PRIMARY KEY (id)"),
        Constraint("t_a_key", "u", "UNIQUE (a) INCLUDE (secret)"),
        Constraint("t_check", "c", "CHECK ((a <> 'secret'::text))"),
    ),
    indexes=(Definition("t_secret", "CREATE INDEX t_secret ON s.t USING btree (secret)"),),
    triggers=(Definition("mine", "CREATE TRIGGER mine ..."),),
    rules=(),
    grants=(),
)


def test_a_structure_is_cut_down_to_a_column_list() -> None:
    columns = (("id", "key"), ("a", "b"), ("up", "up"), ("both", "both"))
    cut, left = restrict(STRUCTURE, columns)
    assert [c.name for c in cut.columns] == ["key", "b", "up", "both"]
    assert cut.key == ("key",)
    assert cut.constraints[0].definition == "PRIMARY KEY (key)"
    assert cut.constraints[1].definition == "CHECK (b <> 'secret'::text)"
    assert cut.columns[2].default == 'upper("b")'
    assert (cut.columns[3].default, cut.columns[3].generated) == (None, "")
    assert left == ["t_a_key", "t_secret", "mine"]


def test_names_of_partitioned_tables_cannot_be_changed() -> None:
    from dataclasses import replace

    parted = replace(STRUCTURE, partition_key="RANGE (id)")
    with pytest.raises(StateError, match="partitioned"):
        restrict(parted, (("id", "key"),))
    assert restrict(parted, (("id", "id"),))[0].partition_key == "RANGE (id)"
