"""Handlers that apply events do what upstream's do on the same input, and its classes run here.

Where they differ on purpose the input avoids it: upstream loses rows that move between shards, and
its `bulk` reads urlencoded events only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wants import wanting
from tests.integration.test_handlers import HASH, SHARD_SETTINGS, SHARDS
from tests.integration.test_qsplitter import events
from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call, content
from tests.labs.upstream import require_londiste
from tests.oracle.upstream_dispatch import is_there
from tests.oracle.upstream_rows import run_upstream
from vedur.db import Database
from vedur.errors import ConfigError
from vedur.handlers.adapter import adapt
from vedur.handlers.registry import handler_attr

__all__ = ["quick_leaf", "use_handlers"]

DEBIAN = Path("/usr/lib/python3/dist-packages")
DDL = "create table {} (id int primary key, shop int, v text)"
#: What each table has on both sides.
HANDLERS: dict[str, tuple[str, dict[str, str]]] = {
    "public.plain": ("londiste", {}),
    "public.kept": ("londiste", {"ignore_truncate": "1"}),
    "public.bulk0": ("bulk", {}),
    "public.bulk1": ("bulk", {"method": "1"}),
    "public.bulk2": ("bulk", {"method": "2"}),
    "public.share": ("shard", {"key": "shop"}),
    "public.old_share": ("part", {"key": "shop", "disable_replay": "1"}),
    "public.virtual": ("vtable", {}),
    "public.split": ("qsplitter", {"queue": "other"}),
}
TABLES = [table.removeprefix("public.") for table in HANDLERS]
_SHARES = ("share", "old_share")
FIELDS = (
    "ev_id, ev_txid, ev_time::text as ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, "
    "ev_extra4"
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "key", "delete", "truncate", "batch"]),
        st.integers(0, 4),
        st.sampled_from(["a", "é'\\ %s", "", None]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.fixture
def leaf(quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers) -> Leaf:
    """A leaf of all these tables, whose root writes what upstream's handlers read."""
    use_handlers(**SHARD_SETTINGS)
    leaf = quick_leaf()
    for db in (leaf.root, leaf.leaf):
        db.execute(HASH)
    for name in TABLES:
        table = f"public.{name}"
        words = ["tgflags=AIUDL"]
        # upstream cannot tell the shard of a truncate
        words += ["ev_extra3='hash='||hash_of(shop)"] if name in _SHARES else []
        for db in (leaf.root, leaf.leaf):
            db.execute(DDL.format(name))
        call(leaf.root, "londiste.local_add_table", QUEUE, table, words)
        call(leaf.leaf, "londiste.global_add_table", QUEUE, table)
        call(leaf.leaf, "londiste.local_add_table", QUEUE, table, ["expect_sync"])
        kind, given_ = HANDLERS[table]
        set_handler(leaf.leaf, table, handler_attr(kind, [f"{k}={v}" for k, v in given_.items()]))
    leaf.leaf.execute(SHARDS.format(nr=1, mask=1, count=2))
    leaf.leaf.execute("select pgq.create_queue('other')")
    return leaf


def prepare(theirs: Database) -> None:
    theirs.autocommit = True
    theirs.execute(HASH)
    theirs.execute(SHARDS.format(nr=1, mask=1, count=2))
    theirs.execute("select pgq.create_queue('other')")
    for name in TABLES:
        theirs.execute(DDL.format(name))


def change(leaf: Leaf, what: str, key: int, text: str | None) -> None:
    """Change a row of all tables; one of an odd number is of the shard of this node."""
    for name in TABLES:
        # what an ignored truncate leaves would be in the way of the next insert, here and there
        if what == "truncate" and name in (*_SHARES, "kept"):
            continue
        texts = {
            "insert": f"insert into {name} values ({key}, {key}, %s::text) on conflict do nothing",
            "update": f"update {name} set v = concat(v, %s::text, '+') where id = {key}",
            "key": f"update {name} set id = id + 10, v = %s::text where id = {key} and not exists "
            f"(select 1 from {name} o where o.id = {key} + 10)",
            "delete": f"delete from {name} where id = {key} and v is distinct from %s::text",
        }
        if what == "truncate":
            leaf.root.execute(f"truncate {name}")
        else:
            leaf.root.execute(texts[what], [text])


@pytest.mark.skipif(not is_there(), reason=wanting("upstream's londiste"))
@pytest.mark.draw("upstream")
def test_the_same_as_upstream(leaf: Leaf, make_db: Callable[..., Database]) -> None:
    theirs = make_db()
    prepare(theirs)
    seen = 0
    fresh = count(100)

    def batch() -> list[dict[str, Any]]:
        """End a batch; returns its events."""
        nonlocal seen
        leaf.catch_up()
        text = f"select {FIELDS} from pgq.event_template where ev_id > %s order by ev_id"
        found = [row._asdict() for row in leaf.root.query(text, [seen])]
        seen = max([seen, *(event["ev_id"] for event in found)])
        return found

    def require_same(batches: list[list[dict[str, Any]]]) -> None:
        run_upstream(theirs.connstr, HANDLERS, batches)
        for name in TABLES:
            assert content(leaf.leaf, name) == content(theirs, name), name
        mine, given_ = (
            [row[1:] for row in events(db, "other", "public.split") if row[1] != "R"]
            for db in (leaf.leaf, theirs)
        )
        assert mine == given_

    @settings(
        max_examples=examples(3), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(STEPS)
    def histories(steps: list[tuple[str, int, str | None]]) -> None:
        batches: list[list[dict[str, Any]]] = []
        for what, key, text in steps:
            if what == "truncate":
                # upstream's bulk fails on a batch that has nothing but a truncate of its table
                change(leaf, "insert", next(fresh), text)
            if what == "batch":
                batches.append(batch())
            else:
                change(leaf, what, key, text)
        require_same([*batches, batch()])

    histories()
    change(leaf, "insert", 3, "a")
    leaf.root.execute("truncate kept")
    require_same([batch()])
    assert len(content(theirs, "kept")) > 0


# -- its classes, through the adapter -------------------------------------------------------------

OWN = """
from londiste.handler import TableHandler
from londiste.handlers.applyfn import ApplyFuncHandler

class Plain(TableHandler):
    __doc__ = TableHandler.__doc__
    handler_name = "their_londiste"

class Call(ApplyFuncHandler):
    __doc__ = ApplyFuncHandler.__doc__
    handler_name = "their_applyfn"

__londiste_handlers__ = [Plain, Call]
"""


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Londiste's own modules, as Debian installs them, for this Python; and a module of ours that
    lists some of its classes under other names."""
    require_londiste()
    before = set(sys.modules)
    (tmp_path / "their_classes.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(DEBIAN)])
    try:
        import londiste.handler  # noqa: F401
    except ImportError:  # it is there for another version of Python
        pytest.skip(wanting("upstream's londiste"))
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("londiste", "skytools", "pgq", "their_classes"):
            del sys.modules[name]


@pytest.mark.parametrize("flags", ["AIUDJ", "AIUDL", "AIUDQ"])
def test_classes_of_debian_run(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, debian: None, flags: str
) -> None:
    use_handlers(handler_modules=("their_classes",))
    leaf = quick_leaf()
    leaf.leaf.execute("create table note (nr serial, tick text, data text)")
    leaf.leaf.execute(
        "create function take(conf text, tick text, text, timestamptz, text, text, text, data text,"
        " text, text, text, text) returns text language sql as"
        " 'insert into note (tick, data) values (tick, conf || data) returning tick'"
    )
    for name, stored in (
        ("t", handler_attr("their_londiste", ["ignore_truncate=1"])),
        ("called", handler_attr("their_applyfn", ["func_name=public.take", "func_conf=x "])),
    ):
        for db in (leaf.root, leaf.leaf):
            db.execute(DDL.format(name))
        call(leaf.root, "londiste.local_add_table", QUEUE, f"public.{name}", [f"tgflags={flags}"])
        call(leaf.leaf, "londiste.global_add_table", QUEUE, f"public.{name}")
        call(leaf.leaf, "londiste.local_add_table", QUEUE, f"public.{name}", ["expect_sync"])
        set_handler(leaf.leaf, f"public.{name}", stored)
    for name in ("t", "called"):
        leaf.root.execute(f"insert into {name} values (1, 1, 'it''s 100%'), (2, 2, null)")
        leaf.root.execute(f"update {name} set v = 'é\\' where id = 1")
        leaf.root.execute(f"update {name} set id = 3 where id = 2; delete from {name} where id = 9")
    leaf.catch_up()
    leaf.same("t")
    text = "select ev_data from pgq.event_template where ev_extra1 = 'public.called' order by ev_id"
    told = [f"x {row[0]}" for row in leaf.root.query(text)]
    assert [row.data for row in leaf.leaf.query("select data from note order by nr")] == told
    assert len(told) == 5 and content(leaf.leaf, "called") == []
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert len(content(leaf.leaf, "t")) == 2


def test_classes_of_debian_that_cannot_be_served_say_why(debian: None) -> None:
    """All that gather events, replace the copy or filter what a branch passes on; their names are
    built in."""
    from londiste.handlers import applyfn, bulk, dispatch, multimaster, obfuscate, qtable, shard
    from londiste.handlers import vtable as virtual

    modules = (applyfn, bulk, dispatch, multimaster, obfuscate, qtable, shard, virtual)
    served = set()
    for cls in (cls for module in modules for cls in module.__londiste_handlers__):
        try:
            served.add(adapt(cls, cls.__name__).name)
        except ConfigError as error:
            assert " of its own: " in error.message
    assert served == {"applyfn", "multimaster"}
