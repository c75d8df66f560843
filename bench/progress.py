"""How far a run is: a bar on a terminal, `[3/12] text` lines elsewhere, read by `make bench`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LINE = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def columns() -> list[Any]:
    """Return the columns of a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    return [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn()]  # fmt: skip


@dataclass
class Steps:
    """The steps of one part."""

    total: int
    bar: Any = None
    task: Any = None
    count: int = field(default=0)

    def say(self, text: str) -> None:
        """Print a line that is no step."""
        if self.bar is None:
            print(text, flush=True)
        else:
            self.bar.console.print(text, highlight=False, markup=False)

    def done(self, text: str) -> None:
        """Count one more step."""
        self.count += 1
        if self.bar is None:
            print(f"[{self.count}/{self.total}] {text}", flush=True)
        else:
            self.say(text)
            self.bar.advance(self.task)


@contextmanager
def steps(title: str, total: int) -> Iterator[Steps]:
    """Return the steps of a part, shown as it suits the output."""
    if not sys.stdout.isatty():
        yield Steps(total)
        return
    from rich.progress import Progress

    with Progress(*columns()) as bar:
        yield Steps(total, bar, bar.add_task(title, total=total))
