"""What the campaign asks of a laboratory."""

from __future__ import annotations

import random
from typing import Any, Protocol

from tests.torture.ground import Ground

#: Workers must be back and at a tick of now within this many seconds after a fault.
RECOVERY = 400.0


class Writers(Protocol):
    """The load: it can be paused where no transaction is open."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class Laboratory(Protocol):
    """One of `tests/torture/labs.py`."""

    @property
    def rig(self) -> Ground: ...

    @property
    def load(self) -> Writers: ...

    def start(self, seed: int) -> None:
        """Build everything, and begin to write."""

    def make_cycle(self, rng: random.Random) -> Any:
        """The tools of one cycle, for a fault; it has a `note` and can be `cheap`."""

    def recover(self, c: Any) -> float:
        """Let writers rest, and wait until all nodes are at a tick of now; the seconds."""
        ...

    def look(self, c: Any) -> dict[str, Any]:
        """Raise where anything differs, or was left behind; numbers for the record."""
        ...
