"""The code of a handler is edited while a table has it: no row of other code beside those here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.labs.first_copy import Lab
from tests.labs.handlers import UseHandlers, use_handlers
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, content
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import Registry
from vedur.handlers.transform import Transform
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.resync import resync
from vedur.ops.session import Session
from vedur.status.snapshot import read_node
from vedur.tables import module_code
from vedur.tables.row_function import RowFunction, forget_handlers_made

__all__ = ["quick_leaf", "use_handlers", "without_spark"]

DDL = "create table t (id int primary key, v text)"

#: A function whose words are in a module beside it.
FUNCTION = """
import pyarrow.compute as pc
from edited_words import WORD

def mark(batch):
    at = batch.schema.get_field_index("v")
    return batch.set_column(at, "v", pc.binary_join_element_wise(batch["v"], WORD, "-"))

mark.rewrites = ("v",)
mark.filters = False
"""

CLASS = """
from edited_function import mark
from vedur.handlers.api import ColumnSet, Handler, Scope

class Own(Handler):
    name = "edited"

    def scope(self, facts, names):
        return Scope(rewrites=ColumnSet.of("v"))

    def rows(self, batch):
        return mark(batch)

HANDLERS = [Own]
"""


class Code:
    """The modules of the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "edited_function.py").write_text(FUNCTION)
        (place / "edited_class.py").write_text(CLASS)
        self.write("old")

    def forget(self) -> None:
        """Be as a process that has loaded none of them."""
        forget_handlers_made()
        for name in ("edited_function", "edited_class", "edited_words"):
            sys.modules.pop(name, None)
            module_code._current.pop(name, None)

    def write(self, word: str, comment: str = "") -> None:
        """Have another word; the file keeps its size and, for most purposes, its time."""
        (self.place / "edited_words.py").write_text(f"{comment}WORD = '{word}'\n")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Code(tmp_path)
    # the worker of the test before may have loaded its modules again while it was being stopped
    made.forget()
    yield made
    made.forget()


def make(registry: Registry) -> RowFunction:
    found = registry.resolve("transform(function=edited_function%3Amark)", "public.t", None, None)
    assert found.rows is not None
    return found.rows


def rows_of(function: RowFunction) -> list[list[str] | None]:
    return function.apply(("id", "v"), [["1", "a"]], ("id",))[1]


def test_a_table_stops_and_a_reload_and_a_copy_make_all_rows_anew(
    quick_lab: Lab, use_handlers: UseHandlers, code: Code
) -> None:
    use_handlers()
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(DDL)
    lab.root.execute("insert into t values (1, 'a')")
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])

    def stopped(word: str) -> bool:
        return word in str(read_node(lab.leaf, QUEUE, "leaf").errors)

    with lab.session() as session:
        add_table(session, AddTable(tables=["t"], transform="edited_function:mark"))
        lab.start()
        lab.wait_ok()
        code.write("old", "# the same code\n")
        lab.root.execute("insert into t values (2, 'a')")
        lab.settle()
        code.write("new")
        lab.root.execute("insert into t values (3, 'a')")
        lab.wait_until(lambda: stopped('the code of module "edited_words" has changed since'))
        use_handlers()  # as the worker does for -r
        lab.wait_until(lambda: stopped("not what its rows were made with"))
        assert content(lab.leaf, "t") == ["(1,a-old)", "(2,a-old)"]
        resync(session, ["t"])
        lab.wait_ok()
        lab.root.execute("insert into t values (4, 'a')")
        lab.settle()
    assert content(lab.leaf, "t") == [f"({n},a-new)" for n in (1, 2, 3, 4)]


def test_a_class_is_its_code(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, code: Code
) -> None:
    use_handlers(handler_modules=("edited_class",))
    leaf = quick_leaf()
    for db in (leaf.root, leaf.leaf):
        db.execute(DDL)
    leaf.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    leaf.catch_up()
    with Session(leaf.settings) as session:
        add_table(session, AddTable(tables=["t"], handler="edited", expect_sync=True))
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.catch_up()
    code.write("new")
    leaf.root.execute("insert into t values (2, 'a')")
    with pytest.raises(StateError, match="has changed since this process has read it"):
        leaf.catch_up()
    use_handlers(handler_modules=("edited_class",))  # a restart
    with pytest.raises(StateError, match="not what its rows were made with"):
        leaf.catch_up()
    assert content(leaf.leaf, "t") == ["(1,a-old)"]
    code.write("old")
    use_handlers(handler_modules=("edited_class",))
    leaf.catch_up()
    assert content(leaf.leaf, "t") == ["(1,a-old)", "(2,a-old)"]


def test_a_task_runs_what_was_planned(code: Code) -> None:
    """Whatever its process has loaded, and its machine has: an older copy, or none."""
    old = make(Registry())
    code.write("new")
    assert rows_of(old) == [["1", "a-old"]]
    new = make(Registry())
    assert old != new, "what was staged with one does not fit the other"
    for function, made in ((new, "a-new"), (old, "a-old"), (new, "a-new")):
        assert rows_of(function) == [["1", made]]
    for path in code.place.iterdir():
        path.unlink()
    assert rows_of(old) == [["1", "a-old"]]


def test_a_module_that_is_not_there_is_named(code: Code) -> None:
    """What is not sent along: here a class of an installed package, on a machine without it."""
    gone = RowFunction("own", "edited_nowhere", "Own", "public.t")
    with pytest.raises(StateError, match='module "edited_nowhere" is missing: install it on every'):
        gone.apply(("id",), [])
    made = make(Registry())
    (words,) = (s for s in made.sources if s.name == "edited_words")
    without = tuple(s for s in made.sources if s is not words)
    for path in code.place.iterdir():
        path.unlink()
    code.forget()
    lacking = RowFunction(made.handler, made.module, made.cls, "public.t", made.given, (), without)
    with pytest.raises(StateError, match='"edited_function" cannot be loaded: ModuleNotFoundError'):
        lacking.apply(("id",), [])


def test_a_function_of_another_package_is_refused(code: Code) -> None:
    """Nobody would notice that its code changes."""
    text = "from tests.labs.transforms import same\n"
    (code.place / "edited_function.py").write_text(text)
    given = {"function": "edited_function:same"}
    handler = Registry().make(Transform.name, "public.t", given)
    with pytest.raises(UsageError, match=r"write tests\.labs\.transforms:same"):
        handler.scope(None, {})
