"""Generated pages of the manual say what the code says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from vedur.cli.manual.pages import PAGES, PARTS, filled, page
from vedur.cli.manual.sql import sql_functions
from vedur.cli.manual.status import _words
from vedur.errors import StateError
from vedur.sql import SCHEMAS

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", [*PAGES, *PARTS])
def test_page_is_current(name: str) -> None:
    text = (DOCS / "reference" / name).read_text("utf-8")
    assert text == page(name, text), "run: python -m vedur.cli.manual"


def test_every_function_tells_its_purpose() -> None:
    functions = [f for schema in SCHEMAS for f in sql_functions(schema)]
    assert len(functions) > 150
    assert [f.name for f in functions if not f.comment or not f.comment[0].strip()] == []


def test_a_part_must_be_marked() -> None:
    text = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n"
    assert filled(text, {"x": "new\n"}) == "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n"
    with pytest.raises(StateError, match="mark each once"):
        filled(text, {"y": "new\n"})


@dataclass
class Told:
    """A value of a page.

    first   what it is
    second  what that is
    """

    first: int
    second: int


@dataclass
class Glued:
    """A value whose second field would be taken for prose.

    first  what it is
    second what that is
    """

    first: int
    second: int


def test_fields_are_told_behind_two_blanks() -> None:
    assert _words(Told).splitlines()[-2:] == ["- `first`: what it is", "- `second`: what that is"]
    with pytest.raises(StateError, match='docstring of Glued: write two blanks behind "second"'):
        _words(Glued)


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r"[\w/-]+\.md", menu))
    on_disk = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert on_disk == named


def test_the_name_of_a_file_is_said_above_it() -> None:
    """Only tests read the word behind the fence."""
    seen = 0
    for path in DOCS.rglob("*.md"):
        above = ""
        for line in path.read_text("utf-8").splitlines():
            found = re.fullmatch(r"```\w+ file=(\S+)", line)
            if found:
                seen += 1
                assert f"`{found[1]}`" in above, (path, found[1])
            above = line if line.strip() else above
    assert seen > 20


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_outside_the_manual(name: str) -> None:
    """mkdocs looks at those of its own pages."""
    home = DOCS.parent
    targets = re.findall(r"\]\(([^)#\s]+)", (home / name).read_text("utf-8"))
    here = [target for target in targets if "://" not in target]
    assert [target for target in here if not (home / target).exists()] == []
    assert name != "README.md" or len(here) > 20
