"""A table of which the branch passes on its own shard only; it is in the set for one cycle.

A branch with such a table cannot become root, nor does a node without the shard belong below it,
so most faults of the laboratory need a set without it: it is added, gets rows of both shards, and
is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.torture import checks
from tests.torture.faults import Cycle, NotReached
from tests.torture.rig import LEAF, MID, ROOT

TABLE = "t.share"
#: Shops of the two shards, whose numbers are nowhere else in an event.
OWN, OTHER = 77770, 77771
#: Events of the root that the queue of the branch must not have.
LEFT_OUT = f"ev_extra1 = '{TABLE}' and ev_data ~ '{OTHER}'"
_HANDLER = (
    "--handler=shard",
    "--handler-arg=hash_expr=shop",
    "--handler-arg=shard_nr=0",
    "--handler-arg=shard_count=2",
)
_WRITE = (
    f"insert into {TABLE} select g, s, 'new' from generate_series(1, 20) g,"
    f" (values ({OWN}), ({OTHER})) x (s) on conflict (id, shop) do update set v = 'again';"
    f" delete from {TABLE} where id % 5 = 0"
)
_ROWS = f"select t::text from {TABLE} t where shop = %s order by 1"
_KNOWN = "select 1 from londiste.table_info where table_name = %s"
_NOTED = "select count(*) from vedur.passed_part where table_name = %s and until_tick is null"


@contextlib.contextmanager
def own_shard(c: Cycle) -> Iterator[None]:
    """The branch is paused before a batch of which it will leave out events."""
    _add(c)
    c.rig.ok(MID, "pause")
    _write(c)
    try:
        yield
    except NotReached:
        _remove(c)
        raise
    _write(c)
    _require_own_rows(c)
    _remove(c)


def _add(c: Cycle) -> None:
    c.rig.ok(ROOT, "add-table", TABLE)
    for node, more in ((MID, ("--handler-arg=pass_on=own",)), (LEAF, ())):
        known = lambda node=node: c.rig.value(node, _KNOWN, [TABLE])  # noqa: E731
        c.rig.wait(known, f"{node} to hear of {TABLE}", 120)
        c.rig.ok(node, "add-table", *_HANDLER, *more, TABLE)
        whole = lambda node=node: c.rig.unfinished_tables(node) == 0  # noqa: E731
        c.rig.wait(whole, f"the copy of {TABLE} on {node}", 120)


def _write(c: Cycle) -> None:
    c.rig.query(ROOT, _WRITE)
    began = c.rig.last_tick()
    c.rig.wait(lambda: c.rig.last_tick() > began + 1, "ticks with both shards", 60)


def _remove(c: Cycle) -> None:
    c.rig.ok(ROOT, "remove-table", TABLE)
    for node in c.rig.followers:
        gone = lambda node=node: not c.rig.value(node, _KNOWN, [TABLE])  # noqa: E731
        c.rig.wait(gone, f"{TABLE} to be removed from {node}", 120)


def _require_own_rows(c: Cycle) -> None:
    """Branch and leaf have the rows of their shard, and no others; the branch has noted that."""
    there = c.rig.last_tick()
    for node in c.rig.followers:
        c.rig.wait(lambda node=node: c.rig.position(node) >= there, f"the shard on {node}", 300)
        rows = {shop: c.rig.query(node, _ROWS, [shop]) for shop in (OWN, OTHER)}
        wanted = {OWN: c.rig.query(ROOT, _ROWS, [OWN]), OTHER: []}
        if rows != wanted:
            raise checks.Failed(f"{node}: {TABLE}: {rows}, it should have {wanted}")
    if c.rig.value(MID, _NOTED, [TABLE]) != 1:
        raise checks.Failed("the branch has not noted which part of its table it passes on")
