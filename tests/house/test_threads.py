"""Threads and pools are made in one place: a plain one would not know for which job it works."""

from __future__ import annotations

import re
from pathlib import Path

import vedur

PACKAGE = Path(vedur.__file__).parent
PLAIN = re.compile(r"threading\.(Thread|Timer)\(|ThreadPoolExecutor|import Thread\b(?<!threads)")


def test_no_module_makes_plain_threads() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "threads.py"
        for line in path.read_text("utf-8").splitlines()
        if PLAIN.search(line) and "vedur.threads" not in line
    ]
    assert found == []
