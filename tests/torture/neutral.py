"""Records go into the repository: they tell what happened, not on whose machine."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def neutral(text: str, places: Mapping[Path, str] | None = None) -> str:
    """Return a JSON text with the machine's directories replaced by what they are.

    `places` names further directories; the longest path is replaced first, since one may lie
    below another.
    """
    known = {
        Path(sys.prefix): "VENV",
        ROOT: "REPOSITORY",
        Path(tempfile.gettempdir()): "TMP",
        Path.home(): "HOME",
        **(places or {}),
    }
    for path in sorted(known, key=lambda p: len(str(p)), reverse=True):
        if path != Path(path.anchor):  # a home of "/" is in every path
            text = text.replace(json.dumps(str(path))[1:-1], known[path])
    return text
