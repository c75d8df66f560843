"""`dispatch` does what upstream's handler does on the same input, preset by preset.

Where they differ on purpose, the input avoids it: upstream leaves a row where it is when the column
that chooses its partition changes, and its way to load in bulk with method 0 loses a row that
changes and is not in the partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.fixtures.wants import wanting
from tests.integration.test_dispatch import (
    DDL,
    Source,
    applied,
    begin,
    catch_up_at,
    spread,
    written_at,
)
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.oracle.upstream_dispatch import is_there, run_upstream
from vedur.handlers.dispatch import PRESETS
from vedur.pipeline.replay import commit, row_by_row
from vedur.pipeline.replay.partitions import read_moment
from vedur.worker.loop import Worker

__all__ = ["applied", "quick_leaf"]

pytestmark = pytest.mark.skipif(not is_there(), reason=wanting("upstream's londiste"))

NOW = "2026-03-01 10:20:00"
#: One for each period, and one for each thing that chooses.
SOME = ("hourly_event", "daily_batch", "monthly_field", "yearly_time")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same time on our clock as on upstream's."""

    def read(db: Any, spec: Any, source: Any) -> str:
        return NOW if spec.partitions.moment == "now" else read_moment(db, spec, source)

    for module in (commit, row_by_row):
        monkeypatch.setattr(module, "read_moment", read)


def steps(source: Source, count: int, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Changes of some rows, whose day stays as it is."""
    for _ in range(count):
        key, kind = draw.randint(1, 5), draw.choice(["put", "put", "put", "delete", "rename"])
        old = source.rows.get(key)
        day = int(old[1][9]) if old else draw.randint(1, 3)
        yield {
            "put": ("put", key, draw.choice("abcd"), day),
            "delete": ("delete", key),
            "rename": ("rename", key, draw.randint(1, 5)),
        }[kind]


def restart(leaf: Leaf, applied: str, names: Iterable[str]) -> None:
    """A worker as a process that has just started has it."""

    def make(provider: str, state: Any) -> Any:
        runner: Any = leaf._runner(provider, state)
        if applied == "one by one":
            runner.applier.log_tables |= {f"public.{name}" for name in names}
        return runner

    leaf.worker._close()
    leaf.worker = Worker(leaf.settings, make)


def compare(leaf: Leaf, applied: str, presets: dict[str, dict[str, str]], seed: int) -> None:
    """Let both apply the same batches, the worker new before each of them."""
    names = {preset: preset.replace("bulk", "b") for preset in presets}
    leaf.leaf.execute("create schema up")
    for preset, name in names.items():
        args = [f"{key}={value}" for key, value in presets[preset].items()]
        begin(leaf, preset, args, name=name)
        leaf.leaf.execute(DDL.replace("table t ", f"table up.{name} "))
    leaf.catch_up()
    source, told, minutes, draw = Source(), [], 0, random.Random(seed)
    for _ in range(5):
        events: list[Any] = []
        for step in steps(source, 6, draw):
            minutes += 11
            moment = f"2026-03-01 {minutes // 60:02}:{minutes % 60:02}:00"
            text, written = source.apply(step)
            if text:
                written_at(leaf, moment, *(text.format(name) for name in names.values()))
            for op, row in written:
                values = dict(zip(("id", "at", "v"), map(str, row), strict=True))
                events.append((f"{op}:id", values, moment))
        end = f"2026-03-0{len(told) // 2 + 1} {minutes // 60:02}:59:59"
        told.append({"end": end, "events": events})
        restart(leaf, applied, names.values())
        catch_up_at(leaf, end)
    tables = {f"up.{name}": (preset, presets[preset]) for preset, name in names.items()}
    run_upstream(leaf.leaf.connstr, tables, told, NOW)
    for preset, name in names.items():
        theirs = spread(leaf.leaf, f"up.{name}")
        assert theirs, preset
        ours = {f"up.{part}": rows for part, rows in spread(leaf.leaf, name).items()}
        assert ours == theirs, preset


def arguments(preset: str) -> dict[str, str]:
    given = {"part_field": "at"} if preset.endswith("_field") else {}
    return given | ({"method": "1"} if preset.startswith("bulk") else {})


def test_some_presets_as_upstream(
    quick_leaf: Callable[..., Leaf], applied: str, clock: None
) -> None:
    compare(quick_leaf(), applied, {preset: arguments(preset) for preset in SOME}, 1)


@pytest.mark.long
def test_all_presets_as_upstream(
    quick_leaf: Callable[..., Leaf], applied: str, clock: None
) -> None:
    names = [cls.name for cls in PRESETS]
    compare(quick_leaf(), applied, {name: arguments(name) for name in names}, 2)
