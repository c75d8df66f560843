"""Classes of Londiste's row-wise interface: run event by event, or refused with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, content
from vedur.catalog.tables import get_table_list
from vedur.errors import ConfigError, DatabaseError, StateError, UsageError
from vedur.handlers.registry import handler_attr, registry
from vedur.ops.compare_tables import handler_refusal
from vedur.tables import module_code

__all__ = ["quick_leaf", "use_handlers"]

#: The interface, in words of our own.
BASE = """
class BaseHandler:
    def __init__(self, table_name, args, dest_table):
        self.table_name, self.args, self.dest_table = table_name, args, dest_table or table_name
        self.conf = self.get_config()
    def get_config(self):
        return {}
    def add(self, trigger_arg_list): pass
    def reset(self): pass
    def prepare_batch(self, batch_info, dst_curs): pass
    def process_event(self, ev, sql_queue_func, arg): pass
    def finish_batch(self, batch_info, dst_curs): pass
    def get_copy_condition(self, src_curs, dst_curs): return ''
    def real_copy(self, src_tablename, src_curs, dst_curs, column_list): pass
    def real_copy_threaded(self, *args): pass
    def needs_table(self): return True
    def get_copy_event(self, ev, queue_name): return ev
    @classmethod
    def load_conf(cls, cf): pass
"""
OWN = """
import json
from londiste.handler import BaseHandler

def literal(value):
    return "'" + str(value).replace("'", "''") + "'"

class Journal(BaseHandler):
    '''Writes what happens into a journal.

    Parameters:
      mark=TEXT - stands before each line
      skip=LETTERS - operations
         to leave out

    Not a parameter.
    '''
    handler_name = "journal"

    def __init__(self, table_name, args, dest_table):
        if args.get("mark") == "wrong":
            raise ValueError("no such mark")
        super().__init__(table_name, args, dest_table)

    def get_config(self):
        return {"ignore_truncate": "R" in self.args.get("skip", "")}

    def add(self, trigger_arg_list):
        trigger_arg_list.append("ev_extra4='four'")

    def prepare_batch(self, batch_info, dst_curs):
        self.tick = batch_info["tick_id"]

    def process_event(self, ev, sql_queue_func, arg):
        assert ev.ev_data == ev.data and ev.time.tzinfo is not None
        op = json.loads(ev.ev_type)["op"]
        if self.args.get("mark") == "curs":
            arg.execute("select 1")
        if self.args.get("mark") == "fail":
            raise ValueError("clear value")
        line = "%s %s %s %s" % (self.args.get("mark"), self.dest_table, op, ev.data)
        sql_queue_func("insert into journal (tick, line) values (%d, %s);"
                       % (self.tick, literal(line)), arg)
        if op == "UPDATE":
            sql_queue_func("insert into journal (line) values ('50%s of %');", arg)

class Same(Journal):
    handler_name = "same"

__londiste_handlers__ = [Journal, Same]
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """modules(text): a module `own_rowwise` beside a stand-in for Londiste's."""
    (tmp_path / "londiste").mkdir()
    (tmp_path / "londiste" / "__init__.py").write_text("")
    (tmp_path / "londiste" / "handler.py").write_text(BASE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two texts may come in one second
    names = ("own_rowwise", "londiste", "londiste.handler")
    before = {name: sys.modules.pop(name, None) for name in names}

    def write(text: str) -> None:
        sys.modules.pop("own_rowwise", None)
        (tmp_path / "own_rowwise.py").write_text(text)

    yield write
    module_code._forget(())  # what is called "londiste" here must not be the next test's
    for name in names:
        sys.modules.pop(name, None)
        if (found := before[name]) is not None:
            sys.modules[name] = found


def lines(leaf: Leaf) -> list[str]:
    return [str(row[0]) for row in leaf.leaf.query("select line from journal order by nr")]


def test_its_statements_run(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, modules: Callable[[str], None]
) -> None:
    modules(OWN)
    use_handlers(handler_modules=("own_rowwise",))
    leaf = quick_leaf()
    leaf.leaf.execute("create table journal (nr serial, tick bigint, line text)")
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    set_handler(leaf.leaf, "public.t", handler_attr("journal", ["mark=it's"]))
    leaf.root.execute("insert into t values (1, '100%s ''q'''); update t set v = 'b'")
    leaf.root.execute("delete from t")
    leaf.catch_up()
    assert lines(leaf) == [
        """it's public.t INSERT {"id":1,"v":"100%s 'q'"}""",
        """it's public.t UPDATE {"id":1,"v":"b"}""",
        "50%s of %",
        """it's public.t DELETE {"id":1,"v":"b"}""",
    ]
    tick = leaf.root.value("select max(tick_id) from pgq.tick")
    assert leaf.leaf.value("select array_agg(distinct tick) from journal where tick > 0") == [tick]
    (table,) = get_table_list(leaf.leaf, QUEUE)
    assert "only its class knows" in (handler_refusal(table) or "")
    handler = registry().make("journal", "public.t", {})
    assert list(handler.trigger_words({})) == ["ev_extra4='four'"]
    # a TRUNCATE, which the class may leave out
    leaf.leaf.execute("set session_replication_role = replica; insert into t values (7, 'here')")
    set_handler(leaf.leaf, "public.t", handler_attr("journal", ["skip=R"]))
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert content(leaf.leaf, "t") == ["(7,here)"]
    set_handler(leaf.leaf, "public.t", handler_attr("same", []))
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert content(leaf.leaf, "t") == []


@pytest.mark.parametrize(
    "mark, message",
    [
        ("curs", r'^\[ev_id=.* table "public\.t": handler "journal" uses the cursor'),
        ("fail", r'^\[ev_id=.* handler "journal\(mark=fail\)" failed: ValueError in process_event'),
    ],
)
def test_an_event_that_fails_stops(
    quick_leaf: Callable[..., Leaf],
    use_handlers: UseHandlers,
    modules: Callable[[str], None],
    mark: str,
    message: str,
) -> None:
    modules(OWN)
    use_handlers(handler_modules=("own_rowwise",))
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    set_handler(leaf.leaf, "public.t", handler_attr("journal", [f"mark={mark}"]))
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.pair.tick()
    with pytest.raises(StateError, match=message) as told:
        leaf.worker.work()
    assert "clear value" not in str(told.value)
    set_handler(leaf.leaf, "public.t", handler_attr("journal", ["mark=x"]))
    with pytest.raises(DatabaseError, match=r'^\[ev_id=.*relation "journal" does not exist'):
        leaf.worker.work()


def test_arguments(use_handlers: UseHandlers, modules: Callable[[str], None]) -> None:
    modules(OWN)
    use_handlers(handler_modules=("own_rowwise",))
    cls = registry().find("journal")
    assert [(a.name, a.meaning) for a in cls.arguments] == [
        ("mark", "stands before each line"),
        ("skip", "operations"),
    ]
    assert cls.summary == "Writes what happens into a journal."
    with pytest.raises(UsageError, match="Invalid handler argument"):
        handler_attr("journal", ["nope=1"])
    with pytest.raises(UsageError, match="does not take these arguments: ValueError"):
        registry().make("journal", "public.t", {"mark": "wrong"})


@pytest.mark.parametrize(
    "method",
    ["finish_batch", "real_copy", "get_copy_event", "load_conf", "get_copy_condition"],
)
def test_what_cannot_be_honoured_is_refused(
    use_handlers: UseHandlers, modules: Callable[[str], None], method: str
) -> None:
    modules(OWN.replace("class Same(Journal):", f"class Same(Journal):\n    {method} = print"))
    with pytest.raises(ConfigError, match=f'"same" has a method {method} of its own: '):
        use_handlers(handler_modules=("own_rowwise",))
    modules("__londiste_handlers__ = [int]")
    with pytest.raises(ConfigError, match="is no handler of Londiste's interface"):
        use_handlers(handler_modules=("own_rowwise",))
