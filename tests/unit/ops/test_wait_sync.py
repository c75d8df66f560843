"""wait-sync on a clock that does not wait."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.clock import FakeClock
from vedur.catalog import TableInfo, TableSet
from vedur.clock import Clock
from vedur.ops import wait_sync


def test_wait_sync_ends_when_the_last_table_is_copied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ready = {"a": False, "b": False, "c": True}
    rounds = iter([[], ["b"], [], ["a"]])

    def pass_by() -> None:
        ready.update(dict.fromkeys(next(rounds), True))

    def tables(_db: object, _queue: str) -> TableSet:
        state = {True: "ok", False: "in-copy"}
        return TableSet(
            TableInfo(n, True, state[r], None, None, None, None, 0, n) for n, r in ready.items()
        )

    errors = iter([set(), {"b: copy failed"}, {"b: copy failed"}, {"a: no place"}])
    monkeypatch.setattr(wait_sync, "get_table_list", tables)
    monkeypatch.setattr(wait_sync, "_errors", lambda _session: next(errors))
    clock: Clock = FakeClock(pass_by)
    session: Any = SimpleNamespace(db=None, queue="q", clock=clock, require_node=lambda: None)
    wait_sync.wait_sync(session)
    assert clock.monotonic() == 2.0
    assert [r.message for r in caplog.records][1:] == [
        "2/3 table(s) to copy",
        "b: copy failed",
        "b: finished (2/3)",
        "a: no place",
        "a: finished (3/3)",
        "All done",
    ]
