"""The script with which a table gets back what a first copy dropped."""

from __future__ import annotations

from vedur.tables.indexes import Part, TableDdl, parse_script


def test_a_stored_script_reads_back_whatever_it_holds() -> None:
    parts = (
        Part("index", "s", "i", "create index i on t ((a || '\n--- vedur {}\n'));"),
        Part("attach", "s", "i", "alter table t add constraint i primary key using index i;"),
        Part("marks", "s", 'o"dd;\n', "comment on index i is 'é😀\n';"),
    )
    ddl = TableDdl(parts)
    assert parse_script(ddl.script()) == ddl
    assert parse_script(None) == TableDdl(())
    assert TableDdl(()).script() is None
    assert parse_script("create index i on t (a);") is None
    newer = TableDdl((Part("index", "s", "i", "other"), Part("index", "s", "j", "new")))
    assert [p.text for p in ddl.merge(newer).parts] == [*(p.text for p in parts), "new"]
