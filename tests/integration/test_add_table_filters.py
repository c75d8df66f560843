"""add-table with conditions and column lists: what is refused, what is made."""

from __future__ import annotations

import pytest

from tests.integration.test_ops_admin import Lab, installed, kind, lab  # noqa: F401
from vedur.errors import UsageError
from vedur.names import parse_name
from vedur.ops import check as check_op
from vedur.ops import show
from vedur.ops.add_table import AddTable, add_table
from vedur.tables.structure import read_structure

WIDE = """
create table s.w (id int primary key, a text not null, secret text, n int default 5,
    twice int generated always as (n * 2) stored,
    up text generated always as (upper(secret)) stored,
    constraint positive check (n > 0), constraint a_once unique (a));
create index w_secret on s.w (secret);
create index w_n on s.w (n, lower(a)) where n > 3;
create table s.child (id int primary key, w int references s.w (id), s text);
"""


def ready(lab: Lab) -> None:  # noqa: F811
    lab.create_nodes()
    lab.root_db.execute(WIDE)
    add_table(lab.root, AddTable(tables=["s.a", "s.w", "s.child"]))
    lab.log.clear()


@pytest.mark.draw(5)
@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"copy_condition": "id <"}, "cannot be read"),
        ({"copy_condition": "nosuch > 3"}, 'names "nosuch".*"id", "t"'),
        ({"copy_condition": "id + 1"}, "must be type boolean"),
        ({"copy_condition": "id > 'x'"}, "invalid input syntax"),
        ({"copy_condition": "nosuch(id)"}, "does not exist"),
        ({"copy_condition": "id in (select 1)"}, "subquery"),
        ({"copy_condition": "id > random()"}, r"calls random\(\)"),
        ({"copy_condition": "t > current_date::text"}, "depends on more than the row"),
        ({"columns": "id,nosuch"}, 'no column "nosuch" on the provider: it has "id", "t"'),
        ({"columns": "t"}, 'lacks "id"'),
        ({"columns": "id,t=other"}, 'no column "other" here: it has "id", "t"'),
        ({"columns": "id,t,"}, None),
        ({"columns": "id", "copy_condition": "t = 'x'"}, 'names "t".*"id"'),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_half_done(
    lab: Lab,  # noqa: F811
    wish: dict[str, str],
    said: str | None,
) -> None:
    ready(lab)
    if said is None:
        add_table(lab.leaf, AddTable(tables=["s.a"], **wish))  # type: ignore[arg-type]
        assert [t.table_name for t in show.tables(lab.leaf)] == ["s.a"]
        return
    with pytest.raises(UsageError, match=said):
        add_table(lab.leaf, AddTable(tables=["s.a"], **wish))  # type: ignore[arg-type]
    assert lab.lines() == []
    assert show.tables(lab.leaf) == []
    with pytest.raises(UsageError, match=said.replace("here: it has", ".*").replace("other", ".*")):
        # with the table made by the same command
        create = AddTable(tables=["s.a"], dest_table="s9.new", create=True, **wish)  # type: ignore[arg-type]
        if wish.get("columns") == "id,t=other":
            raise UsageError('no column "other" .* "id", "t"')
        add_table(lab.leaf, create)
    assert not lab.leaf_db.value("select exists (select from pg_namespace where nspname = 's9')")


def test_a_condition_that_depends_on_the_time_can_be_forced(lab: Lab) -> None:  # noqa: F811
    ready(lab)
    wish = AddTable(tables=["s.a"], copy_condition="t > current_date::text", force=True)
    add_table(lab.leaf, wish)
    assert any("depends on more than the row" in line for line in lab.lines())


def test_column_lists_of_what_kind(lab: Lab) -> None:  # noqa: F811
    ready(lab)
    with pytest.raises(UsageError, match="root has all columns"):
        add_table(lab.root, AddTable(tables=["s.b"], columns="id"))
    with pytest.raises(UsageError, match="only for single table"):
        add_table(lab.leaf, AddTable(tables=["s.a", "s.b"], columns="id"))
    lab.leaf_db.execute("create table s.w (id int primary key, needed int not null)")
    with pytest.raises(UsageError, match=r'"needed".*NOT NULL without a default'):
        add_table(lab.leaf, AddTable(tables=["s.w"], columns="id"))
    lab.leaf_db.execute("alter table s.w alter needed set default 1")
    add_table(lab.leaf, AddTable(tables=["s.w"], columns="id"))
    assert [f.differences for f in check_op.check(lab.leaf)] == [()]


def test_a_condition_is_about_what_changes_tell(lab: Lab) -> None:  # noqa: F811
    ready(lab)
    with pytest.raises(UsageError, match="the root has all rows"):
        add_table(lab.root, AddTable(tables=["s.b"], copy_condition="id < 3"))
    lab.root_db.execute("create table s.i (id int primary key, region text, other text)")
    add_table(lab.root, AddTable(tables=["s.i"], trigger_args=["ignore=other,region"]))
    lab.leaf_db.execute("create table s.i (id int primary key, region text, area text)")
    for columns, column in ((None, "region"), ("id,region=area", "area")):
        wish = AddTable(tables=["s.i"], copy_condition=f"{column} = 'eu'", columns=columns)
        with pytest.raises(UsageError, match=f'looks at "{column}", but capture .* "region" out'):
            add_table(lab.leaf, wish)
    add_table(lab.leaf, AddTable(tables=["s.i"], copy_condition="id < 3"))
    lab.leaf_db.execute(WIDE)
    said = r'looks at "twice", a generated column, .* write out its expression: \(n \* 2\)'
    with pytest.raises(UsageError, match=said):
        add_table(lab.leaf, AddTable(tables=["s.w"], copy_condition="twice > 3"))
    add_table(lab.leaf, AddTable(tables=["s.w"], copy_condition="n * 2 > 3"))
    assert [t.table_name for t in show.tables(lab.leaf)] == ["s.i", "s.w"]


def test_create_makes_the_columns_of_the_list(lab: Lab) -> None:  # noqa: F811
    ready(lab)
    wish = AddTable(
        tables=["s.w"],
        dest_table="s2.narrow",
        columns="id=key,a,n=num,twice,up",
        copy_condition="num > 3 and narrow.key < 100",
        create=True,
    )
    add_table(lab.leaf, wish)
    assert lab.lines() == ["INFO Table added: s.w(s2.narrow)"]
    made = read_structure(lab.leaf_db, parse_name("s2.narrow"))
    assert made is not None
    assert [(c.name, c.type, c.not_null, bool(c.generated)) for c in made.columns] == [
        ("key", "integer", True, False),
        ("a", "text", True, False),
        ("num", "integer", False, False),
        ("twice", "integer", False, True),
        ("up", "text", False, False),
    ]
    assert made.key == ("key",)
    assert [c.kind for c in made.constraints] == ["p"]
    (table,) = show.tables(lab.leaf)
    assert table.columns == (
        ("id", "key"), ("a", "a"), ("n", "num"), ("twice", "twice"), ("up", "up")
    )  # fmt: skip
    lab.leaf_db.execute("alter table s2.narrow drop column a, add column free int")
    (found,) = check_op.check(lab.leaf)
    assert found.differences == (
        'column "a" (text) is missing here',
        'column "up" is generated on provider only',
    )


def test_create_full_takes_what_the_columns_allow(lab: Lab) -> None:  # noqa: F811
    ready(lab)
    lab.leaf_db.execute("drop schema s cascade")
    add_table(lab.leaf, AddTable(tables=["s.w"], columns="id=key,a,n", create_full=True))
    add_table(lab.leaf, AddTable(tables=["s.child"], columns="id,w=parent", create_full=True))
    assert any("created without w_secret" in line for line in lab.lines())
    made = read_structure(lab.leaf_db, parse_name("s.w"))
    assert made is not None
    assert {c.name for c in made.constraints} >= {"w_pkey", "a_once", "positive"}
    assert [i.name for i in made.indexes] == ["w_n"]
    (key,) = check_op.fkeys(lab.leaf)
    lab.leaf_db.execute(key.fkey_def)
    assert "(parent)" in key.fkey_def
    assert "(key)" in key.fkey_def
