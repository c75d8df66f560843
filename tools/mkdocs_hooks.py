"""Blocks name the file that they are to be stored in (`ini file=src.ini`).

Tests that follow the pages read it; Markdown knows no such word.
"""

from __future__ import annotations

import re
from typing import Any

_FILE = re.compile(r"^```(\w+) file=\S+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return _FILE.sub(r"```\1", markdown)
