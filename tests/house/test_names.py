"""Every name leads to one thing, and what stands under it says more than the name.

What the rules do not allow and is there already is listed or counted here. A list or a number may
only become smaller: whoever mends an entry takes it away.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import vedur

PACKAGE = Path(vedur.__file__).parent

#: Named queries that nothing runs.
UNUSED: set[str] = set()
#: Names that two or more classes share.
SHARED = {
    "Entry", "Finding", "Kind", "Option", "Pair", "Part", "Piece",
    "Plan", "Sample", "Slice", "Stage", "State", "Stats", "Step", "Verdict", "Watch",
    "_Asker", "_Parser",
}  # fmt: skip
#: Words that add nothing to a name.
FILLING = {"a", "an", "the", "of", "to", "this", "self", "is", "it"}
#: What the docstring of a function may begin with. A new word is welcome if it is a verb.
VERBS = {
    "Add", "Advance", "Answer", "Apply", "Ask", "Bar", "Begin", "Believe", "Bring", "Build",
    "Call", "Cancel", "Carry", "Catch", "Change", "Check", "Choose", "Claim", "Clean", "Clear",
    "Close", "Compare", "Complete", "Compose", "Compress", "Compute", "Connect", "Convert",
    "Count", "Create", "Cut", "Decide", "Decode", "Delete", "Describe", "Direct", "Disconnect",
    "Divide", "Do", "Draw", "Drop", "Empty", "End", "Enter", "Execute", "Export", "Fetch",
    "Fill", "Find", "Finish", "Forget", "Format", "Free", "Give", "Go", "Group", "Hand", "Have",
    "Hold", "Ignore", "Import", "Insert", "Install", "Join", "Keep", "Know", "Leave", "Let",
    "Lift", "Limit", "List", "Listen", "Load", "Lock", "Log", "Look", "Make", "Mark", "Mask",
    "Match", "Merge", "Mix", "Move", "Name", "Note", "Notify", "Number", "Open", "Parse",
    "Pass", "Pause", "Place", "Plan", "Point", "Prepare", "Print", "Publish", "Put", "Query",
    "Quote", "Raise", "Read", "Record", "Refuse", "Register", "Release", "Remember", "Remove",
    "Rename", "Renew", "Repair", "Repeat", "Replace", "Replay", "Report", "Require", "Reserve",
    "Reset", "Return", "Rotate", "Run", "Say", "See", "Select", "Send", "Serve", "Set", "Shift",
    "Shorten", "Show", "Skip", "Split", "Stage", "Start", "Stop", "Store", "Subscribe", "Tag",
    "Take", "Tell", "Translate", "Truncate", "Try", "Turn", "Undo", "Unregister", "Use", "Wait",
    "Wake", "Walk", "Warn", "Work", "Write", "Yield",
}  # fmt: skip
#: What begins the docstring of a function that answers yes or no.
QUESTIONS = {"Are", "Can", "Do", "Does", "Had", "Has", "Have", "Is", "May", "Must", "Were", "Would"}


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def definitions() -> list[tuple[Path, Definition]]:
    return [
        (path.relative_to(PACKAGE), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, Definition)
    ]


def test_every_named_query_is_run() -> None:
    text = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    written = set(re.findall(r'"(\w+)"', text))
    unused = {
        f"{path.stem}.{name}"
        for path in (PACKAGE / "sql" / "queries").glob("*.sql")
        for name in re.findall(r"^-- name: (\w+)", path.read_text("utf-8"), re.M)
        if name not in written
    }
    assert unused == UNUSED


def test_a_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for path, node in definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(str(path))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert set(twice) == SHARED, {name: twice.get(name) for name in set(twice) ^ SHARED}


def says_nothing(name: str, docstring: str) -> bool:
    words = set(re.findall(r"[^\W_]+", docstring.lower())) - FILLING
    return words <= set(name.lower().split("_"))


def test_a_docstring_says_more_than_the_name() -> None:
    found = []
    for path, node in definitions():
        if not isinstance(node, ast.ClassDef):
            said = ast.get_docstring(node)
            if said is not None and says_nothing(node.name, said):
                found.append(f"{path}: {node.name}: {said}")
    assert not found, "\n".join(found)


def test_the_rule_knows_an_empty_docstring() -> None:
    assert says_nothing("change_provider", "change-provider")
    assert says_nothing("read_ticks", "Read the ticks.")
    assert says_nothing("rows", "...")
    assert not says_nothing("read_ticks", "Read the ticks of a queue.")
    assert not says_nothing("count", "`1,234,567`.")


def says_what_it_does(docstring: str, returns: str) -> bool:
    """Is it an order ("Read the ticks of a queue.") or, where the answer is a bool, a question?"""
    sentence = re.split(r"(?<=[.?])\s", docstring)[0]
    first, *more = re.findall(r"[\w']+", sentence) or [""]
    if sentence.endswith("?") and first in QUESTIONS:
        return returns == "bool"
    order = sentence.partition(":")[0]
    # "Number of the tick" is no order.
    return first in VERBS and more[:1] != ["of"] and not order.endswith("?")


def is_property(node: Definition) -> bool:
    names = {
        name.id
        for part in node.decorator_list
        for name in ast.walk(part)
        if isinstance(name, ast.Name)
    }
    return not names.isdisjoint({"property", "cached_property"})


def test_a_function_says_what_it_does() -> None:
    found = []
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) or is_property(node):
            continue
        said = ast.get_docstring(node)
        returns = ast.unparse(node.returns) if node.returns is not None else ""
        if said is not None and not says_what_it_does(said, returns):
            found.append(f"{path}: {node.name}: {said.splitlines()[0]}")
    assert not found, "\n".join(found)


def test_the_rule_knows_what_says_nothing_of_a_call() -> None:
    assert says_what_it_does("Read the row that an event is about.", "Row")
    assert says_what_it_does("Connect; statements commit by themselves.", "Database")
    assert says_what_it_does("Is there a tick? Reads the queue.", "bool")
    assert says_what_it_does("Is a row of another type: a fragment, or null?", "bool")
    assert says_what_it_does("Yield findings about the worker: does it run?", "Iterator[Finding]")
    assert not says_what_it_does("The row that an event is about.", "Row")
    assert not says_what_it_does("Number of the tick.", "int")
    assert not says_what_it_does("Raises where there is none.", "None")
    assert not says_what_it_does("Is there a tick?", "int | None")
    assert not says_what_it_does("Record this table?", "bool")
    assert not says_what_it_does("For `--json`.", "dict[str, Any]")
    assert not says_what_it_does("...", "None")
