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
