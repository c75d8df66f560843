"""When a ticker runs again: every `ticker_period`, and sooner while queues have events. Pure.

A queue is busy for a second after a tick that had events. Meanwhile the ticker runs as often as the
queue may tick (`ticker_max_lag`), but not more often than `busy_period` says. The contract alone
decides whether there is a tick; a queue that ticks seldom makes nobody run more often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Seconds after a tick with events in which more of them are expected.
_BUSY_SECONDS = 1.0

#: A tick that is a moment too young is not followed by another one, and half of them would be.
_SLACK = 0.002


@dataclass
class Pace:
    """Knows which queues of a database are busy: until when, by their lag."""

    _busy: dict[float, float] = field(default_factory=dict)

    def until_next(self, now: float, lags: Iterable[float], period: float, least: float) -> float:
        """Return the seconds to the next run; `lags` are of queues that have ticked with events."""
        self._busy |= dict.fromkeys(lags, now + _BUSY_SECONDS)
        self._busy = {lag: until for lag, until in self._busy.items() if until > now}
        shortest = min(self._busy, default=period)
        return min(period, max(least, shortest + _SLACK))
