"""Statistics lines of a worker: `{count: 123, duration: 0.04, idle: 3.1}`."""

from __future__ import annotations

import logging
from dataclasses import dataclass


def render(values: dict[str, float]) -> str:
    """Keys in order, whole numbers whole, others with two digits."""
    shown = [
        f"{key}: {value if isinstance(value, int) else format(value, '.2f')}"
        for key, value in sorted(values.items())
    ]
    return "{" + ", ".join(shown) + "}"


@dataclass
class Stats:
    """Knows when the last line was written."""

    last_end: float | None = None
    last_line: float = 0.0

    def worked(self, log: logging.Logger, done: dict[str, int], began: float, now: float) -> None:
        """A batch ended."""
        values: dict[str, float] = {**done, "duration": now - began}
        if self.last_end is not None:
            values["idle"] = max(0.0, began - self.last_end)
        self.last_end = self.last_line = now
        # An empty tick is no news; it would fill the log of a quiet night.
        log.log(logging.INFO if done.get("count") else logging.DEBUG, "%s", render(values))

    def idle(self, log: logging.Logger, now: float, period: float) -> None:
        """Nothing to do; say so now and then."""
        if period and now - self.last_line >= period:
            idle = now - self.last_end if self.last_end is not None else 0.0
            log.info("%s", render({"idle": idle}))
            self.last_line = now

    def standby(self, log: logging.Logger, now: float, period: float) -> None:
        """A root's round."""
        if now - self.last_line >= period or not self.last_line:
            log.info("{standby: 1}")
            self.last_line = now
