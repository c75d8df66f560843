"""The kit that runs a user's handler on databases: what does not hold is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.errors import StateError
from vedur.handlers.testing_databases import TwoDatabases, _Oracle, check_on_databases

DDL = "create table shop (id int primary key, v text, price numeric)"
OWN = """
import pyarrow.compute as pc
from vedur.handlers.api import Argument, ColumnSet, Handler, Scope

class Loud(Handler):
    name = "loud"
    summary = "Says it loud, and leaves out what is secret."
    arguments = (Argument("above", "the least price", default="0"),)

    def scope(self, facts, names):
        return Scope(rewrites=ColumnSet.of("v"), filters=True)

    def rows(self, batch):
        batch = batch.filter(pc.not_equal(pc.fill_null(batch["v"], ""), "secret"))
        at = batch.schema.get_field_index("v")
        return batch.set_column(at, "v", pc.utf8_upper(batch["v"]))

HANDLERS = [Loud]
"""


@pytest.fixture
def databases(
    servers: object, make_db_on: Callable[..., Database], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Database, Database]:  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "kit_loud.py").write_text(OWN)
    made = [make_db_on(servers.get(v), "bare") for v in (min(VERSIONS), max(VERSIONS))]  # type: ignore[attr-defined]
    for db in made:
        db.autocommit = True
        db.execute(DDL)
    return made[0], made[1]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.draw("programs")
def test_a_handler_that_holds(databases: tuple[Database, Database]) -> None:
    root, leaf = databases
    root.execute("insert into shop select n, 'v' || n, n / 3.0 from generate_series(1, 50) n")
    nodes = TwoDatabases(root.connstr, leaf.connstr, {"handler_modules": "kit_loud"})
    count = check_on_databases(
        nodes, "public.shop", "loud", {"above": "1"},
        changes=["update shop set v = 'secret' where id % 5 = 0; delete from shop where id = 3"],
        while_away=["update shop set v = 'back', id = id + 100 where id = 10"],
    )  # fmt: skip
    assert count == 50 - 1 - 10 + 1
    with connect(leaf.connstr) as db:
        assert db.value("select v from shop where id = 110") == "BACK"


def test_what_differs_is_shown(databases: tuple[Database, Database]) -> None:
    root, leaf = databases
    root.execute("insert into shop values (1, 'a', 1.50), (2, 'secret', 2), (3, null, null)")
    settings = LondisteSettings(db=leaf.connstr, queue_name="q", handler_modules=("kit_loud",))
    oracle = _Oracle(settings, "public.shop", "loud", {}, root, leaf)
    leaf.execute("insert into shop values (1, 'A', 1.50), (3, null, null)")
    assert oracle.check("now") == 2
    leaf.execute("update shop set v = 'a' where id = 1")
    with pytest.raises(AssertionError, match=r"later: the leaf lacks .*'A'.*and has .*'a'"):
        oracle.check("later")
    some = _Oracle(
        settings,
        "public.shop",
        "shard",
        {"hash_expr": "id", "shard_nr": "0", "shard_count": "1"},
        root,
        leaf,
    )  # a condition, and no function over rows
    leaf.execute("truncate shop; insert into shop values (1, 'a', 1.50), (2, 'secret', 2)")
    with pytest.raises(AssertionError, match=r"lacks \[\('3', None, None\)\], and has \[\]"):
        some.check("at last")
    with pytest.raises(StateError, match="does not follow from those of the root"):
        _Oracle(settings, "public.shop", "londiste", {"ignore_truncate": "1"}, root, leaf)
