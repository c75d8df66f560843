"""Handlers for a test: those of the process are put back when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.labs.pair import QUEUE
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.handlers import registry

KEY = "correct horse battery staple"

UseHandlers = Callable[..., registry.Registry]


@pytest.fixture
def use_handlers(tmp_path: Path) -> Iterator[UseHandlers]:
    """use_handlers(rules=None, **settings): the handlers of such an ini, until the test ends."""
    before = dict(registry._current)

    def use(rules: dict[str, Any] | None = None, **settings: Any) -> registry.Registry:
        if rules is not None:
            path = tmp_path / "rules.json"
            path.write_text(json.dumps(rules))
            settings |= {"obfuscator_map": str(path), "obfuscator_key": KEY}
        return registry.load_handlers(LondisteSettings(db="", queue_name=QUEUE, **settings))

    yield use
    registry._current.clear()
    registry._current.update(before)


def set_handler(db: Database, table: str, handler: str | None) -> None:
    """Store a handler with a table, as a node of Londiste has it."""
    attrs = None if handler is None else f"handler={quote_plus(handler)}"
    db.execute("select londiste.local_set_table_attrs(%s, %s, %s)", [QUEUE, table, attrs])
