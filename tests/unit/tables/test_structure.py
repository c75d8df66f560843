"""How structures differ, and the DDL that makes one."""

from __future__ import annotations

from dataclasses import replace

from vedur.names import QualifiedName
from vedur.tables import ddl
from vedur.tables.structure import ColumnDefinition, Constraint, Definition, Structure, differences


def column(name: str, kind: str = "integer", **more: object) -> ColumnDefinition:
    values: dict[str, object] = {
        "not_null": False,
        "default": None,
        "identity": "",
        "generated": "",
        "collation": None,
        "sequence": None,
    }
    return ColumnDefinition(name, kind, **(values | more))  # type: ignore[arg-type]


TABLE = Structure(
    table=QualifiedName("s", "t"),
    kind="r",
    owner="me",
    partition_key=None,
    options=(),
    columns=(
        column(
            "id", not_null=True, default="nextval('s.t_id_seq'::regclass)", sequence="s.t_id_seq"
        ),
        column("odd Name", "text"),
        column("twice", generated="s", default="(id * 2)"),
    ),
    key=("id",),
    constraints=(
        Constraint("t_pkey", "p", "PRIMARY KEY (id)"),
        Constraint("t_check", "c", "CHECK ((id > 0))"),
        Constraint("t_other_fkey", "f", "FOREIGN KEY (id) REFERENCES s.other(id)"),
    ),
    indexes=(Definition("t_name_idx", 'CREATE INDEX t_name_idx ON s.t USING btree ("odd Name")'),),
    triggers=(),
    rules=(),
    grants=(),
)


def test_structures_differ_in_words() -> None:
    other = replace(
        TABLE,
        columns=(column("id", "bigint", not_null=True), column("new", not_null=True)),
        key=(),
    )
    assert differences(TABLE, TABLE) == []
    assert differences(TABLE, other) == [
        'column "id" is integer on provider, bigint here',
        'column "odd Name" (text) is missing here',
        'column "twice" (integer) is missing here',
        'column "new" (integer) is missing on provider, and it is NOT NULL without a default',
        "key is (id) on provider, missing here",
    ]


def test_create_table_plain_and_full() -> None:
    plain = ddl.create_table(TABLE, QualifiedName("s", "t"))
    assert plain == [
        'create table "s"."t" (\n    "id" integer not null,\n    "odd Name" text,\n'
        '    "twice" integer generated always as ((id * 2)) stored\n)',
        'alter table "s"."t" add constraint "t_pkey" PRIMARY KEY (id)',
    ]
    full = ddl.create_table(
        TABLE, QualifiedName("x", "u"), sequences={"s.t_id_seq"}, roles={"me"}, full=True
    )
    assert "default nextval('s.t_id_seq'::regclass)" in full[0]
    assert full[1] == 'alter table "x"."u" add constraint "u_pkey" PRIMARY KEY (id)'
    assert any("u_check" in text for text in full)
    assert not any("FOREIGN KEY" in text for text in full)
    index = next(text for text in full if "index" in text.lower())
    assert '"u_name_idx"' in index and "x.u" in index.replace('"', "")
    assert full[-1] == 'alter table "x"."u" owner to "me"'
