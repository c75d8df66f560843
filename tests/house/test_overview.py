"""docs/design/overview.md names modules and functions that exist, and counts them right.

The page is read as it stands: in code marks `x/y.py` is a module of the package, `name()` a
function, class or method (`Class.method()`) of the module named last before it, and
`schema.name()` with a schema of ours a function in SQL.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import vedur
from vedur.sql import SCHEMAS

PACKAGE = Path(vedur.__file__).parent
PAGE = PACKAGE.parent / "docs" / "design" / "overview.md"
CODE = re.compile(r"`([^`\n]+)`")
MODULE = re.compile(r"[\w/]+\.py")
CALLED = re.compile(r"([A-Za-z_][\w.]*)\(\)")
COUNTED = re.compile(r"Modules: (\d+)\.")
#: The most modules that each walk may open, in the order of the page.
MOST = (26, 36, 28)


def sections() -> dict[str, str]:
    """The sections of the page by their titles."""
    texts = PAGE.read_text("utf-8").split("\n## ")[1:]
    return {text.split("\n", 1)[0]: text for text in texts}


def walks() -> dict[str, str]:
    """The sections of the page that are walks: those that say how many modules they open."""
    return {title: text for title, text in sections().items() if COUNTED.search(text)}


@cache
def names_of(module: str) -> frozenset[str]:
    """What a module defines: `function`, `Class`, `Class.method`."""
    names = set()
    for node in ast.parse((PACKAGE / module).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return frozenset(names)


def modules_of(text: str) -> list[str]:
    return [code for code in CODE.findall(text) if MODULE.fullmatch(code)]


def missing_from(text: str) -> list[str]:
    """What a section names and the package does not have."""
    sql = {path.stem for schema in SCHEMAS for path in (PACKAGE / "sql" / schema).rglob("*.sql")}
    missing, module = [], ""
    for code in CODE.findall(text):
        if MODULE.fullmatch(code):
            module = code
            if not (PACKAGE / module).is_file():
                missing.append(f"module vedur/{module}")
                module = ""
        elif (called := CALLED.fullmatch(code)) is not None:
            name = called[1]
            if name.split(".")[0] in SCHEMAS:
                if name not in sql:
                    missing.append(f"SQL function {name}")
            elif module and name not in names_of(module):
                missing.append(f"{name} in vedur/{module}")
    return missing


@pytest.mark.parametrize("title", sections())
def test_what_a_section_names_exists(title: str) -> None:
    missing = missing_from(sections()[title])
    assert missing == [], f"docs/design/overview.md, {title!r}: moved or renamed, update the page"


@pytest.mark.parametrize("title", walks())
def test_the_modules_of_a_walk_are_counted(title: str) -> None:
    text = walks()[title]
    said = COUNTED.search(text)
    assert said is not None
    modules = set(modules_of(text))
    assert int(said[1]) == len(modules), (
        f"docs/design/overview.md, {title!r}: write 'Modules: {len(modules)}.'"
    )


def test_there_are_three_walks() -> None:
    assert len(walks()) == 3


def test_the_walks_stay_short() -> None:
    counts = [len(set(modules_of(text))) for text in walks().values()]
    longer = [(title, n) for title, n, most in zip(walks(), counts, MOST, strict=True) if n > most]
    assert longer == [], "a walk opens more modules than it may: tell the work in fewer places"


def test_every_package_is_drawn() -> None:
    drawing = PAGE.read_text("utf-8").split("```text\n")[1].split("```")[0]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    drawn = set(re.findall(r"\w+", drawing))
    assert sorted(packages - drawn) == [], "a package is not in the drawing of overview.md"
