"""Staging tables: two slots that leave each other alone, and what a merge expects in them."""

from __future__ import annotations

from collections import Counter

import pytest

from vedur.change.table import Replica
from vedur.db import Database
from vedur.errors import StateError
from vedur.pipeline.apply.merge import TableMerge
from vedur.pipeline.plan import StagedTable
from vedur.pipeline.stage.tables import ensure_stages, load_specs, stage_name

WANTED = [Replica("public.t", "public.t")]


def test_making_one_slot_anew_leaves_the_other(db: Database) -> None:
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    old = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [old], 0)
    ensure_stages(db, "q", [old], 1)
    db.execute(f"insert into {stage_name(old, 0)} values (7, 1, 1, 'I', 1, 5, 'five')")
    db.execute("alter table t add column c int")
    new = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [new], 1)
    db.execute(f"insert into {stage_name(new, 1)} values (8, 2, 2, 'I', 1, 6, 'six', 6)")
    table = StagedTable(old, ("id",), {1: ("id", "v")}, Counter({("I", 1): 1}), chunks=1)
    assert TableMerge(db, table, 0, [7]).run().inserted == 1
    assert db.query("select * from t") == [(5, "five", None)]


def test_a_merge_notices_staged_changes_that_are_gone(db: Database) -> None:
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    spec = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [spec], 0)
    db.execute(f"insert into {stage_name(spec, 0)} values (7, 1, 1, 'I', 1, 5, 'five')")
    table = StagedTable(spec, ("id",), {1: ("id", "v")}, Counter({("I", 1): 2}), chunks=1)
    with pytest.raises(StateError, match=r'table "public\.t": 1 of 2 staged changes are there'):
        TableMerge(db, table, 0, [7]).run()
    assert db.value("select count(*) from t") == 0
