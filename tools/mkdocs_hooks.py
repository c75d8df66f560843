"""Pages name the file that a block is to be stored in (`ini file=src.ini`): show that name."""

from __future__ import annotations

import re
from typing import Any

_FILE = re.compile(r"^```(\w+) file=(\S+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return _FILE.sub(r"`\2`:\n\n```\1", markdown)
