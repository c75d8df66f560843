"""A column of the leaf alone tells the parts of a merged table, whose keys may be the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.labs.in_process import without_spark  # noqa: F401
from tests.labs.merge import MergeLab, PartLab, make_merge
from vedur import failpoint
from vedur.errors import ConnectError, StateError, UsageError, VedurError
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_filter import ChangeFilter, change_filter
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.check import check
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.remove_table import remove_table
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.resync import resync

__all__ = ["make_merge"]

MakeMerge = Callable[[int], MergeLab]

DDL = "create table t (id int primary key, name text unique, v int, at timestamptz default now())"
#: On the leaf alone: the column, and keys that have it.
WIDER = """
alter table t add {shard}, drop constraint t_pkey, drop constraint t_name_key;
alter table t add primary key (shard, id), add unique (name, shard);
"""


def make(make_merge: MakeMerge, count: int, shard: str = "shard text not null") -> MergeLab:
    """Every root has the same keys."""
    lab = make_merge(count)
    lab.make(DDL, "public.t")
    lab.leaf.execute(WIDER.format(shard=shard))
    for part in lab.parts:
        text = "insert into t select g, 'name ' || g, 0, now() from generate_series(1, 40) g"
        part.root.execute(text)
    return lab


def add(part: PartLab, **options: Any) -> None:
    with part.session() as session:
        add_table(session, AddTable(tables=["t"], **options))


def add_all(lab: MergeLab) -> None:
    add(lab.parts[0], merge_all=True, part_column="shard")
    lab.start()
    lab.wait_ok()


def here(part: PartLab, value: str | None = None) -> list[str]:
    """The rows of a part on the leaf, as the root would write them."""
    text = "select (id, name, v, at)::text from t where shard = %s"
    return sorted(row[0] for row in part.leaf.query(text, [value or part.queue]))


def there(part: PartLab) -> list[str]:
    return sorted(row[0] for row in part.root.query("select (id, name, v, at)::text from t"))


def require_equal(lab: MergeLab) -> None:
    lab.settle()
    for part in lab.parts:
        assert here(part) == there(part), part.queue
    count = sum(len(there(part)) for part in lab.parts)
    assert lab.leaf.value("select count(*) from t") == count


CHANGES = (
    # one of each, and what becomes one net change
    "insert into t values (41, 'new', 1); update t set v = 2 where id in (5, 41)",
    "delete from t where id = 6; insert into t values (6, 'again', 3)",
    # a key that changes, and names that swap: rows collide in passing
    "update t set id = 99 where id = 7",
    "update t set name = 'x' where id = 8; update t set name = 'name 8' where id = 9;"
    " update t set name = 'name 9' where id = 8",
    "update t set v = v + 1",
    "begin; truncate t; insert into t values (1, 'first of the new', 0); commit",
    "insert into t select g, 'n' || g, g from generate_series(200, 230) g;"
    " delete from t where id = 203",
)


def test_parts_with_the_same_keys(make_merge: MakeMerge) -> None:
    """First copies, changes of every kind, TRUNCATE: each part changes its own rows only."""
    lab = make(make_merge, 3)
    lab.leaf.execute("insert into t values (1, 'old', 0, now(), 'nobody')")
    add_all(lab)
    # as with conditions, what is nobody's stays
    assert lab.leaf.value("select count(*) from t where shard = 'nobody'") == 1
    lab.by_hand("delete from t where shard = 'nobody'")
    require_equal(lab)
    for turn, change in enumerate(CHANGES):
        lab.parts[turn % 3].root.execute(change)
        require_equal(lab)
    one, two, _ = lab.parts
    one.stop()  # a batch of several ticks, with both sides of a TRUNCATE in it
    for change in CHANGES:
        two.root.execute("update t set v = v + 1 where id = 1")
        one.root.execute("delete from t; insert into t select g, 'name ' || g, 0, now()"
                         " from generate_series(1, 40) g")  # fmt: skip
        one.root.execute(change)
        one.tick()
    one.start()
    require_equal(lab)
    # what nobody replicates any more stays
    with two.session() as session:
        assert [found.differences for found in check(session)] == [()]
        remove_table(session, ["t"])
    before = here(two)
    one.root.execute("truncate t")
    two.root.execute("truncate t")
    one.tick()
    lab.wait(lambda: here(one) == [])
    assert here(two) == before
    # and goes where the part comes back
    add(two, no_merge=True, part_column="shard")
    lab.wait_ok()
    require_equal(lab)


def test_events_one_by_one(make_merge: MakeMerge) -> None:
    """What the server refuses goes into quarantine, and the rest of the batch row by row."""
    lab = make(make_merge, 2)
    one, two = lab.parts
    for part in lab.parts:
        part.on_error = "quarantine-row"
    add_all(lab)
    lab.leaf.execute("alter table t add constraint few check (v < 100)")
    one.root.execute("insert into t values (50, 'too many', 100), (51, 'fits', 99)")
    one.root.execute("update t set v = 3 where id = 1; delete from t where id = 2")
    one.root.execute("update t set v = 200 where id = 3; update t set name = 'other' where id = 4")
    before = here(two)
    lab.settle()
    assert here(two) == before
    found = {row[0]: row[1] for row in lab.leaf.query("select id, v from t where shard = 's1'")}
    assert found[1] == 3 and found[3] == 0 and found[51] == 99
    assert 2 not in found and 50 not in found
    assert lab.leaf.value("select count(*) from vedur.quarantine") == 2


@pytest.mark.parametrize(
    "shard,values",
    [
        ("shard int not null", "12"),
        ("shard varchar(2)", "12"),
        ('shard "char"', "12"),
        ("shard text", ("it's %s {x} \\n\t\"", "'; truncate t; --")),
    ],
    ids=["int", "varchar", "char", "odd"],
)
def test_values_of_other_types(make_merge: MakeMerge, shard: str, values: Sequence[str]) -> None:
    """A condition over columns of the root goes beside it."""
    lab = make(make_merge, 2, shard)
    for value, part in zip(values, lab.parts, strict=True):
        where = "v >= 0 and name <> '%'"
        add(part, no_merge=True, part_column=f"shard={value}", copy_condition=where)
    lab.start()
    lab.wait_ok()
    one, two = lab.parts
    one.root.execute("update t set v = -1 where id < 10; insert into t values (90, 'n', 1)")
    one.root.execute("update t set v = 5 where id = 3; delete from t where id = 20")
    two.root.execute("update t set v = -2 where id = 3; truncate t; insert into t values (7, 'a')")
    two.root.execute("update t set v = 1 where id = 7; insert into t values (8, '%', 1)")
    lab.settle()
    for value, part in zip(values, lab.parts, strict=True):
        text = "select (id, name, v, at)::text from t where v >= 0 and name <> '%'"
        want = sorted(row[0] for row in part.root.query(text))
        assert here(part, value) == want


PLACES = ("copy.led", "copy.emptied", "copy.loaded", "copy.joined", "copy.restored")


@pytest.mark.draw(1)
@pytest.mark.parametrize("place", PLACES)
def test_a_part_that_dies_is_taken_up_again(make_merge: MakeMerge, place: str) -> None:
    lab = make(make_merge, 2)
    died: list[str] = []

    def hook(name: str) -> None:
        if name == place and len(died) < 2:
            died.append(name)
            raise ConnectError("the process died here")

    failpoint.set_hook(hook)
    add_all(lab)
    assert died
    failpoint.set_hook(None)
    lab.parts[1].root.execute(CHANGES[0])
    require_equal(lab)
    with lab.parts[1].session() as session:  # one alone, while the other goes on
        resync(session, ["t"])
    lab.parts[0].root.execute(CHANGES[4])
    lab.wait_ok()
    require_equal(lab)
    lab.wait(lambda: lab.debris() == [])


@pytest.mark.draw("compare")
def test_compare_and_repair_see_one_part(make_merge: MakeMerge, spark: Any) -> None:
    lab = make(make_merge, 2)
    add_all(lab)
    require_equal(lab)
    one, two = lab.parts
    ask = CompareOptions(tables=("t",), max_wait=300)
    mend = RepairOptions(tables=("t",), apply=True, max_wait=300)
    with one.session() as first, two.session() as second:
        assert compare(first, ask, spark).exit_code == 0
        lab.by_hand(
            "delete from t where id = 12",
            "update t set v = -1 where id = 21",
            "update t set name = 'name 31x' where id = 30 and shard = 's1'",
            "insert into t select 991, 'extra', 0, now(), s from unnest(array['s1', 's2']) s",
        )
        assert compare(first, ask, spark).exit_code == 1
        (done,) = repair(first, mend, spark)
        assert (done.inserts, done.updates, done.deletes) == (1, 2, 1)
        assert compare(first, ask, spark).exit_code == 0
        assert here(one) == there(one) and len(here(two)) == 40
        assert compare(second, ask, spark).exit_code == 1
        repair(second, mend, spark)
        assert compare(second, ask, spark).exit_code == 0
    require_equal(lab)


def test_a_key_of_two_parts_is_named(make_merge: MakeMerge) -> None:
    """A key that lacks the column: rows of one part are in the way of the other's."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    lab.leaf.execute("alter table t add shard text not null")
    lab.parts[0].root.execute("insert into t values (1, 'a', 1)")
    lab.parts[1].on_error = "quarantine-row"
    add_all(lab)
    lab.parts[1].root.execute("insert into t values (1, 'b', 2), (2, 'c', 3)")
    lab.parts[1].root.execute("update t set v = 5 where id = 2")
    lab.settle()
    assert lab.leaf.query("select id, v, shard from t order by id") == [(1, 1, "s1"), (2, 5, "s2")]
    message = lab.leaf.value("select message from vedur.quarantine")
    assert message.endswith('and the row that is there belongs to "s1" (node "s1_root")')


def test_what_cannot_be_meant(make_merge: MakeMerge) -> None:
    lab = make(make_merge, 2)
    one, two = lab.parts

    def refused(why: str, part: PartLab = one, **options: Any) -> None:
        with pytest.raises(VedurError, match=why):
            add(part, **options)

    refused("NAME or NAME=VALUE", part_column="=x")
    refused("NAME or NAME=VALUE", part_column="shard=")
    refused("the same value", merge_all=True, part_column="shard=1")
    refused("without --create", no_merge=True, part_column="shard", create=True)
    refused("is no column here", no_merge=True, part_column="region")
    refused("comes from the provider, too", no_merge=True, part_column="name")
    one.leaf.execute("alter table t add nr int")
    refused("invalid input syntax", no_merge=True, part_column="nr")
    refused("NOT NULL without a default", no_merge=True, part_column="nr=1", columns="id,name,v")
    add(one, no_merge=True, part_column="shard=1")
    refused("by the same value of the same column", two, no_merge=True, part_column="shard=1")
    refused("each of the others must", two, no_merge=True)
    add(two, no_merge=True, part_column="shard=2")
    lab.start()
    lab.wait_ok()
    with one.session() as session:
        with pytest.raises(StateError, match="change-filter is not for table"):
            change_filter(session, ChangeFilter(table="t", where="v > 0"))
        with pytest.raises(StateError, match="change-handler is not for table"):
            change_handler(session, ChangeHandler(table="t", handler="nop"))
    # the root gets a column of that name: its values are not for this one
    one.root.execute("alter table t add shard text; insert into t values (77, 'n', 0, now(), 'x')")
    lab.wait(lambda: bool(lab.leaf.value("select count(*) from vedur.replay_error")))
    assert 'the root has a column "shard" now' in lab.leaf.value(
        "select message from vedur.replay_error"
    )
    assert len(here(two, "2")) == 40


def test_it_is_for_leafs_and_plain_tables(make_merge: MakeMerge) -> None:
    lab = make(make_merge, 1, "shard varchar(1)")
    (one,) = lab.parts
    with pytest.raises(UsageError, match='would hold "s" and not "s1"'):
        add(one, no_merge=True, part_column="shard")
    with pytest.raises(UsageError, match="beside handler"):
        add(one, no_merge=True, part_column="shard=1", handler="nop")
    one.leaf.execute("update pgq_node.node_info set node_type = 'branch'")
    with pytest.raises(UsageError, match="is for leafs"):
        add(one, no_merge=True, part_column="shard=1")
