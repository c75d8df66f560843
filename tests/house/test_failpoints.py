"""Every named failpoint is reached in one place, and nothing but tests can set the hook."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import vedur
from vedur.failpoint import NAMES
from vedur.worker.first_copy.context import Step

PACKAGE = Path(vedur.__file__).parent
REACH = re.compile(r'\breach\((f?)"([^"]+)"\)')
STEPS = "copy.{step.name.lower()}"


def sources() -> dict[str, str]:
    """All modules but the one that defines it."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text("utf-8")
        for path in PACKAGE.rglob("*.py")
        if path.name != "failpoint.py"
    }


def test_each_name_is_reached_in_one_place() -> None:
    found: Counter[str] = Counter()
    for text in sources().values():
        for formatted, name in REACH.findall(text):
            names = [f"copy.{step.name.lower()}" for step in Step] if formatted else [name]
            assert not formatted or name == STEPS
            found.update(names)
    assert set(found) == set(NAMES)
    assert {name: n for name, n in found.items() if n != 1} == {}


def test_every_reach_names_its_point_as_a_literal() -> None:
    for path, text in sources().items():
        calls = len(re.findall(r"\breach\(", text))
        assert calls == len(REACH.findall(text)), path


def test_only_tests_set_the_hook() -> None:
    assert [path for path, text in sources().items() if "set_hook" in text] == []
    module = (PACKAGE / "failpoint.py").read_text("utf-8")
    assert not re.search(r"import os|environ\b.*[\[(]|getenv", module)
