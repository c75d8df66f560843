"""Shards are divided anew while they are written: 2 to 4 to 1, of one root and of their own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.chain import DEADLINE
from tests.labs.in_process import compare_here
from tests.labs.sets import Living, Sets, living
from vedur import failpoint
from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.drop_node import drop_node
from vedur.ops.wait_sync import wait_root

__all__ = ["compare_here"]

pytestmark = pytest.mark.usefixtures("without_spark")

MakeSets = Callable[..., Sets]

#: A row belongs to the shard of its customer, whose number may be negative.
DDL = "create table orders (id int primary key, customer int not null, n int not null default 0)"
HASHED = "hash_expr=customer"
#: Rows that no writer touches.
STILL = 1_000_000
FILL = "insert into orders select %s + g, g - 100, 0 from generate_series(1, 200) g"

#: What a DBA does to a shard that is being replaced: it waits for the writers of now, and refuses
#: all that come later.
CLOSE = """
create function moved() returns trigger language plpgsql as
    $$ begin raise exception 'orders has moved'; end $$;
create trigger moved before insert or update or delete or truncate on orders
    for each statement execute function moved();
"""


def shard(number: int, count: int) -> dict[str, Any]:
    args = [HASHED, f"shard_nr={number}", f"shard_count={count}"]
    return {"handler": "shard", "handler_args": args}


def follow(lab: Sets, life: Living, queue: str, place: str, **options: Any) -> None:
    """Make a database a leaf of a queue, and add the table there."""
    if place not in lab.dbs:
        lab.database(place).execute(DDL)
    lab.add(queue, place, NodeType.LEAF, queue)
    life.start(queue, place)
    with lab[queue, place].session() as session:
        add_table(session, AddTable(tables=["orders"], **options))


def lead(lab: Sets, life: Living, place: str) -> None:
    """Make a database the root of a queue of its name."""
    if place not in lab.dbs:
        lab.database(place).execute(DDL)
    lab.add(place, place, NodeType.ROOT)
    life.start(place, place)
    with lab[place, place].session() as session:
        add_table(session, AddTable(tables=["orders"]))


def leave(lab: Sets, life: Living, queue: str, place: str) -> None:
    """Take a node out of its set."""
    life.stop(queue, place)
    with lab[queue, place].session() as session:
        drop_node(session, place)
    lab.nodes.pop((queue, place)).close()


def in_sync(lab: Sets, *nodes: tuple[str, str]) -> bool:
    text = "select merge_state from londiste.get_table_list(%s) where local"
    states = [lab.dbs[place].value(text, [queue]) for queue, place in nodes]
    return states == ["ok"] * len(nodes)


def require_equal(lab: Sets, spark: Any, *nodes: tuple[str, str]) -> None:
    """`compare` finds the nodes equal, at a moment of each, among the writers."""
    for queue, place in nodes:
        with lab[queue, place].session() as session:
            result = compare(session, CompareOptions(), spark)
        assert result.exit_code == 0, (queue, place, result)
        assert [t.compared for t in result.tables] == [True]


def rows_of(db: Database) -> dict[int, tuple[int, int]]:
    found = db.query("select id, customer, n from orders")
    assert len(found) == len({row.id for row in found})
    return {row.id: (row.customer, row.n) for row in found}


class Moved(Exception):
    """The shard says that the rows are elsewhere by now."""


class Application:
    """Writes rows of its own to the shards that hold them, and knows what must be there.

    `map` is how an application finds its shard; where one refuses, it looks again and tries again.
    """

    def __init__(self, lab: Sets, places: list[str], first: int) -> None:
        self.lab, self.first = lab, first
        self.map = places  # by shard; replaced as a whole
        self.moves = True  # rows to other customers
        self.rows: dict[int, tuple[int, int]] = {}
        self.done = 0
        self.refused = 0
        self.errors: list[str] = []
        self.between = threading.Lock()  # held for each change
        self._dbs: dict[str, Database] = {}
        self._random = random.Random(first)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(DEADLINE)
        for db in self._dbs.values():
            db.close()

    def _run(self) -> None:
        try:
            while not SYSTEM.wait(self._over, 0.01):
                with self.between:
                    self._change()
                    self.done += 1
        except Exception as error:
            self.errors.append(repr(error))

    def _change(self) -> None:
        dice = self._random
        key = self.first + dice.randrange(150)
        customer = dice.randrange(-40, 40) if self.moves else key % 80 - 40
        before = self.rows.get(key)
        if before is None:
            self._do(customer, "insert into orders values (%s, %s)", [key, customer])
            self.rows[key] = (customer, 0)
        elif dice.random() < 0.2:
            self._do(before[0], "delete from orders where id = %s", [key])
            del self.rows[key]
        elif not self.moves or dice.random() < 0.5:
            self._do(before[0], "update orders set n = n + 1 where id = %s", [key])
            self.rows[key] = (before[0], before[1] + 1)
        else:
            self._move(key, before, customer)

    def _move(self, key: int, before: tuple[int, int], customer: int) -> None:
        """Give a row to another customer: within a database, or from one to another."""
        new = (customer, before[1])
        if len(set(self.map)) == 1:
            text = "update orders set customer = %s where id = %s"
            self._do(customer, text, [customer, key])
        else:
            self._do(before[0], "delete from orders where id = %s", [key])
            self._do(customer, "insert into orders values (%s, %s, %s)", [key, *new])
        self.rows[key] = new

    def _do(self, customer: int, text: str, values: list[int]) -> None:
        """Until a shard takes it; the check may look meanwhile."""
        while True:
            place = self.map[customer % len(self.map)]
            try:
                self._db(place).execute(text, values)
                return
            except DatabaseError as error:
                if "orders has moved" not in error.message:
                    raise
                self.refused += 1
                if SYSTEM.wait(self._over, 0.01):
                    raise Moved from None

    def _db(self, place: str) -> Database:
        if place not in self._dbs:
            connstr = self.lab.dbs[place].connstr
            self._dbs[place] = connect(connstr, autocommit=True, application_name="shop")
        return self._dbs[place]

    def go_on(self, changes: int = 40) -> None:
        """Until so many more changes are written."""
        goal = self.done + changes
        assert until(lambda: self.errors or self.done >= goal), self.done
        assert self.errors == []


@contextmanager
def applications(lab: Sets, places: list[str], count: int = 2) -> Iterator[list[Application]]:
    made = [Application(lab, places, (at + 1) * 1000) for at in range(count)]
    with ExitStack() as stack:
        for one in made:
            stack.enter_context(one)
        yield made
        assert [one.errors for one in made] == [[]] * count


def go_on(apps: list[Application]) -> None:
    for app in apps:
        app.go_on()


def send_to(apps: list[Application], places: list[str]) -> None:
    for app in apps:
        app.map = places


def require_rows(lab: Sets, apps: list[Application], places: list[str], *, more: int = 0) -> None:
    """Each row that was written is on the shard that it belongs to, as it is, and on no other;
    `more`: so many rows that nobody touches, too. Applications pause for this look at all shards
    at once."""
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(app.between)
        want = {key: row for app in apps for key, row in app.rows.items()}
        want |= {STILL + g: (g - 100, 0) for g in range(1, more + 1)}
        for number, place in enumerate(places):
            share = {key: row for key, row in want.items() if row[0] % len(places) == number}
            assert len(share) > 20
            db = lab.dbs[place]
            assert until(lambda db=db, share=share: rows_of(db) == share), place  # type: ignore[misc]


@contextmanager
def reading(db: Database, where: str, rows: int) -> Iterator[None]:
    """Look at a shard all the time: rows that stay there are never seen to be away."""
    seen: set[int] = set()
    over = threading.Event()

    def read() -> None:
        with connect(db.connstr, autocommit=True) as own:
            while not SYSTEM.wait(over, 0.002):
                seen.add(own.value(f"select count(*) from orders where {where}"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(DEADLINE)
    assert seen == {rows}


class Killed(BaseException):
    """What a killed process looks like from inside."""


@pytest.mark.draw("filters")
def test_shards_of_a_root_are_divided_anew(make_sets: MakeSets, compare_here: Any) -> None:
    """One root is split into two shards, these into four, and back to one. Writers on the root
    notice nothing, and readers of a shard see the rows that stay there all the time."""
    lab = make_sets()
    two, four = ["s0", "s1"], ["s0", "s1", "s2", "s3"]
    with living(lab) as life, ExitStack() as stack:
        lead(lab, life, "shop")
        lab.dbs["shop"].execute(FILL, [STILL])
        apps = stack.enter_context(applications(lab, ["shop"]))

        def change(place: str, **options: Any) -> None:
            with lab["shop", place].session() as session:
                change_handler(session, ChangeHandler(table="orders", **options), compare_here)

        def require(places: list[str]) -> None:
            nodes = [("shop", place) for place in places]
            assert until(lambda: in_sync(lab, *nodes)), life.errors
            go_on(apps)
            require_equal(lab, compare_here, *nodes)

        for number, place in enumerate(two):
            follow(lab, life, "shop", place, **shard(number, 2))
        require(two)
        require_rows(lab, apps, two, more=200)
        # the new shards come first, and then the old ones give rows away
        for number in (2, 3):
            follow(lab, life, "shop", four[number], **shard(number, 4))
        assert until(lambda: in_sync(lab, *(("shop", place) for place in four))), life.errors
        stay = f"id > {STILL} and (customer & 3) = 0"
        stack.enter_context(reading(lab.dbs["s0"], stay, 50))
        versions = f"select id, xmin::text from orders where {stay} order by 1"
        before = lab.dbs["s0"].query(versions)
        change("s0", dry_run=True, **shard(0, 4))
        assert lab.dbs["s0"].value(f"select count(*) from orders where id > {STILL}") == 100
        for number, place in enumerate(two):
            change(place, **shard(number, 4))
        assert lab.dbs["s0"].query(versions) == before  # they were not written again
        require(four)
        require_rows(lab, apps, four, more=200)
        # one gets all rows, and then the others go
        change("s0", handler="londiste")
        for place in four[1:]:
            leave(lab, life, "shop", place)
        require(["s0"])
        require_rows(lab, apps, ["s0"], more=200)
        known = lab.dbs["shop"].query("select node_name from pgq_node.node_location order by 1")
        assert [row.node_name for row in known] == ["s0", "shop"]
        assert [app.refused for app in apps] == [0, 0]
        assert life.errors == []


@pytest.mark.draw("filters")
def test_a_crash_leaves_the_old_shard_or_the_new(make_sets: MakeSets, compare_here: Any) -> None:
    lab = make_sets()
    node = ("shop", "s0")
    customers = "select array_agg(customer order by id) from orders where {}"

    def change(number: int, count: int) -> None:
        with lab[node].session() as session:
            wish = ChangeHandler(table="orders", **shard(number, count))
            change_handler(session, wish, compare_here)

    def require(number: int, count: int) -> None:
        """The shard has its share, and that of changes that come now."""
        root, leaf = lab.dbs["shop"], lab.dbs["s0"]
        root.execute("update orders set customer = customer + 1")
        wanted = root.value(customers.format(f"(customer & {count - 1}) = {number}"))
        assert until(lambda: leaf.value(customers.format("true")) == wanted)
        require_equal(lab, compare_here, node)

    with living(lab) as life:
        lead(lab, life, "shop")
        lab.dbs["shop"].execute(FILL, [STILL])
        old = (0, 2)
        follow(lab, life, "shop", "s0", **shard(*old))
        assert until(lambda: in_sync(lab, node)), life.errors
        for point in ("planned", "staged", "switched", "committed"):
            new = (1, 4) if old == (0, 2) else (0, 2)

            def dies(name: str, point: str = point) -> None:
                if name == f"filter.{point}":
                    raise Killed

            failpoint.set_hook(dies)
            try:
                with pytest.raises(Killed):
                    change(*new)
            finally:
                failpoint.set_hook(None)
            require(*(new if point == "committed" else old))
            change(*new)
            require(*new)
            old = new
        assert life.errors == []
        aside = "select count(*) from pg_class where relname like 'filter\\_rows\\_%'"
        assert lab.dbs["s0"].value(aside) == 0


def cut_over(lab: Sets, life: Living, old: list[str], new: dict[str, list[str]]) -> None:
    """Put new shards in the place of old ones; `new` has the queues that each new one follows. Old
    ones refuse writers from now on, and new ones are open when they have all that was written."""
    for place in old:
        lab.dbs[place].execute(CLOSE)
    for place, queues in new.items():
        for queue in queues:
            with lab[queue, place].session() as session:
                wait_root(session)
            leave(lab, life, queue, place)
        lead(lab, life, place)


@pytest.mark.long
def test_shards_that_are_written_to_are_divided_anew(
    make_sets: MakeSets, compare_here: Any
) -> None:
    """Two databases that applications write to become four, and these one. Rows move between them
    all the time, and nobody is refused but by a shard that is being replaced."""
    lab = make_sets()
    with living(lab) as life, ExitStack() as stack:
        for place in ("p0", "p1"):
            lead(lab, life, place)
        apps = stack.enter_context(applications(lab, ["p0", "p1"]))
        go_on(apps)
        require_rows(lab, apps, ["p0", "p1"])
        # each shard is the root of two new ones
        four = {f"s{number}": f"p{number % 2}" for number in range(4)}
        for number, (place, old) in enumerate(four.items()):
            follow(lab, life, old, place, **shard(number, 4))
        nodes = [(old, place) for place, old in four.items()]
        assert until(lambda: in_sync(lab, *nodes)), life.errors
        go_on(apps)
        require_equal(lab, compare_here, *nodes)
        # one after the other, so that half of the rows can be written all the time
        cut_over(lab, life, ["p0"], {"s0": ["p0"], "s2": ["p0"]})
        send_to(apps, ["s0", "p1", "s2", "p1"])
        go_on(apps)
        cut_over(lab, life, ["p1"], {"s1": ["p1"], "s3": ["p1"]})
        send_to(apps, list(four))
        go_on(apps)
        require_rows(lab, apps, list(four))
        for place in ("p0", "p1"):
            leave(lab, life, place, place)
        # all come together in one; a row that goes from one part to another, and back, might never
        # find its key free
        for app in apps:
            app.moves = False
        go_on(apps)
        for number, place in enumerate(four):
            where = f"(customer & 3) = {number}"
            follow(lab, life, place, "one", no_merge=True, copy_condition=where)
            assert until(lambda at=place: in_sync(lab, (at, "one"))), life.errors  # type: ignore[misc]
        lab.dbs["s0"].execute("insert into orders values (7, 0)")
        one = lab.dbs["one"]
        assert until(lambda: one.value("select customer from orders where id = 7") == 0)
        lab.dbs["s0"].execute("delete from orders where id = 7")
        lab.dbs["s1"].execute("insert into orders values (7, 1)")
        assert until(lambda: one.value("select customer from orders where id = 7") == 1)
        lab.dbs["s1"].execute("delete from orders where id = 7")
        go_on(apps)
        require_equal(lab, compare_here, *((place, "one") for place in four))
        cut_over(lab, life, list(four), {"one": list(four)})
        send_to(apps, ["one"])
        go_on(apps)
        require_rows(lab, apps, ["one"])
        # the row may have come before it had gone
        assert all("in another's way" in text for _, _, text in life.errors)
        for place in four:
            leave(lab, life, place, place)


@pytest.mark.draw("filters")
def test_shards_that_have_rows_of_several(make_sets: MakeSets, compare_here: Any) -> None:
    """Two databases become three: each new one has a share of both, told apart by conditions."""
    lab = make_sets()
    with living(lab) as life:
        for number in range(2):
            lead(lab, life, f"p{number}")
            lab.dbs[f"p{number}"].execute(f"{FILL} where (g & 1) = {number}", [STILL])
        nodes = []
        for part in range(2):
            queue, where = f"p{part}", f"(customer & 1) = {part}"
            for number in range(3):
                nodes.append((queue, f"s{number}"))
                follow(lab, life, *nodes[-1], no_merge=True, copy_condition=where,
                       **shard(number, 3))  # fmt: skip
            assert until(lambda: in_sync(lab, *nodes)), life.errors
        require_rows(lab, [], ["s0", "s1", "s2"], more=200)
        require_equal(lab, compare_here, *nodes)
        # another share of one part leaves the rows of the other alone
        with lab["p0", "s0"].session() as session:
            wish = ChangeHandler(table="orders", **shard(1, 3))
            change_handler(session, wish, compare_here)
        require_equal(lab, compare_here, ("p0", "s0"), ("p1", "s0"))
        text = "select count(*) filter (where (customer & 1) = 1) from orders"
        assert lab.dbs["s0"].value(text) == 34
        lab.dbs["p0"].execute("truncate orders")
        assert until(lambda: lab.dbs["s0"].value("select count(*) from orders") == 34)
        assert life.errors == []


def test_what_is_refused(make_sets: MakeSets, compare_here: Any) -> None:
    lab = make_sets()
    with living(lab) as life:
        lead(lab, life, "shop")
        lab.database("s0").execute(DDL)
        node = lab.add("shop", "s0", NodeType.LEAF, "shop")
        life.start("shop", "s0")
        lab.dbs["shop"].execute("create table more (id int primary key, customer int)")
        wish = AddTable(tables=["more"], **shard(0, 2))
        refused = pytest.raises(UsageError, match="the root has the rows of all shards")
        with lab["shop", "shop"].session() as session, refused:
            add_table(session, wish)
        with node.session() as session:
            add_table(session, AddTable(tables=["orders"], **shard(0, 2)))
            assert until(lambda: in_sync(lab, ("shop", "s0"))), life.errors
            for options, message in (
                ({"max_wait": -1.0}, "from 0 up"),
                ({"handler_args": ["key=nope", "shard_nr=0", "shard_count=4"]}, "nope"),
            ):
                other = ChangeHandler(table="orders", **{**shard(0, 4), **options})
                with pytest.raises(UsageError, match=message):
                    change_handler(session, other, compare_here)
            lab.dbs["s0"].execute("update londiste.table_info set merge_state = 'in-copy'")
            with pytest.raises(StateError, match=r"not synced yet.*nothing is changed"):
                change_handler(session, ChangeHandler(table="orders", **shard(0, 4)), compare_here)
