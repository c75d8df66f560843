"""What the figures are held against: each target, where its number is found, its limit.

A limit stands here only if it was set before measuring; a target without one is shown with its
number and no verdict. `Reports` are the JSON files of bench/results by name.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Reports = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """One line of the table."""

    nr: str
    what: str
    unit: str
    measure: Callable[[Reports], float | None]
    limit: float | None = None
    sense: Literal["<=", ">="] = "<="
    #: (report, key, least): a run with less says nothing about the target.
    size: tuple[str, str, float] | None = None

    def too_small(self, reports: Reports) -> bool:
        """Return True if the run was smaller than the target requires."""
        if self.size is None:
            return False
        part, key, least = self.size
        return float(reports.get(part, {}).get(key, least)) < least

    def measured(self, reports: Reports) -> float | None:
        """Return the number, None where the run that has it is missing."""
        try:
            return self.measure(reports)
        except (KeyError, IndexError, ZeroDivisionError, statistics.StatisticsError):
            return None

    def verdict(self, reports: Reports) -> str:
        """Return met, not met, or why that cannot be said."""
        value = self.measured(reports)
        if value is None:
            return "not measured"
        if self.too_small(reports):
            return "the run was too small"
        if self.limit is None:
            return "no limit set"
        met = value <= self.limit if self.sense == "<=" else value >= self.limit
        return "met" if met else "**not met**"


def _to(part: str, key: str, one: str, other: str) -> Callable[[Reports], float]:
    """Return the median of ratios within rounds."""

    def measure(reports: Reports) -> float:
        seconds = reports[part]
        for word in key.split("."):
            seconds = seconds[word]
        pairs = zip(seconds[one], seconds[other], strict=True)
        return statistics.median(a / b for a, b in pairs)

    return measure


def _latency(quantile: str) -> Callable[[Reports], float]:
    def measure(reports: Reports) -> float:
        rows = [r for r in reports["latency"]["rounds"] if r["peer"] == "vedur"]
        return statistics.median(r[quantile] for r in rows)

    return measure


def _tables(count: int, reports: Reports) -> Any:
    return next(r for r in reports["scale"]["tables"] if r["tables"] == count)


def _more_tables(reports: Reports) -> float | None:
    try:
        many, few = _tables(500, reports), _tables(100, reports)
    except StopIteration:
        return None
    return float(many["us_per_event"]) / float(few["us_per_event"])


def _lost(reports: Reports) -> float | None:
    try:
        return float(_tables(500, reports)["live_lost"])
    except StopIteration:
        return None


def _growth(reports: Reports) -> float:
    """Compare the last size with the one before it: small backlogs pay for the start of a batch."""
    rows = reports["scale"]["events"]
    return float(rows[-1]["us_per_event"] / rows[-2]["us_per_event"])


def _memory(reports: Reports) -> float:
    rows = reports["scale"]["events"]
    return float(sum(rows[-1]["rss"].values()) / sum(rows[0]["rss"].values()))


def _footprint(*path: str) -> Callable[[Reports], float]:
    def measure(reports: Reports) -> float:
        found = reports["footprint"]
        for word in path:
            found = found[word]
        return float(found)

    return measure


def _compare(key: str) -> Callable[[Reports], float]:
    def measure(reports: Reports) -> float:
        largest = max(reports["compare"], key=int)
        return float(reports["compare"][largest]["ratios"][key])

    return measure


BACKLOG = ("apply", "events", 400_000)
LARGE = ("copy", "rows", 5_000_000)
RATE = ("latency", "rate", 500)
WIDE = ("scale", "table_events", 200_000)

TARGETS = (
    Target("1", "catching up with a backlog, time to native's", "ratio",
           _to("apply", "seconds", "vedur", "native"), 0.33, size=BACKLOG),
    Target("1", "the same, time to Londiste's", "ratio",
           _to("apply", "seconds", "vedur", "londiste"), size=BACKLOG),
    Target("2", "UPDATE of 200,000 rows, commit to visible, to native's", "ratio",
           _to("apply", "bulk_seconds", "vedur", "native"), 0.5),
    Target("3", "first copy of a large table, to native's", "ratio",
           _to("copy", "large.seconds", "vedur", "native"), 1.0, size=LARGE),
    Target("3", "the same, to `psql \\| psql` with the key in place", "ratio",
           _to("copy", "large.seconds", "vedur", "pipe"), 1.0, size=LARGE),
    Target("3", "four small tables, to native's", "ratio",
           _to("copy", "small.seconds", "vedur", "native")),
    Target("3", "the same, to Londiste's", "ratio",
           _to("copy", "small.seconds", "vedur", "londiste")),
    Target("3", "a hundred tables that are almost empty, to native's", "ratio",
           _to("copy", "many.seconds", "vedur", "native"), 2.0),
    Target("4", "latency at 500 transactions a second, p50", "s", _latency("p50"), 0.4, size=RATE),
    Target("4", "the same, p99", "s", _latency("p99"), 0.8, size=RATE),
    Target("5", "capture by row triggers, transactions a second to the C trigger's", "ratio",
           lambda r: float(r["capture"]["tps"]["row"]["ratio"])),
    Target("6", "compare of a large table, to one plain checksum query a side, with a writer",
           "ratio", _compare("count_to_plain"), 1.3),
    Target("6", "the same without a writer", "ratio", _compare("count_to_plain_at_rest"), 1.3),
    Target("6", "all of the command, with a writer, to Londiste's", "ratio",
           _compare("total_to_upstream"), 1.0),
    Target("7", "cost of an event, largest backlog to the one before", "ratio", _growth, 1.0),
    Target("7", "memory, largest backlog to the smallest", "ratio", _memory),
    Target("7", "cost of an event, 500 tables to 100", "ratio", _more_tables,
           size=WIDE),
    Target("7", "live over 500 tables: transactions that did not come", "", _lost, 0.0),
    Target("9", "catching up of a branch, its rate to a leaf's beside it", "ratio",
           lambda r: float(r["cascade"]["rate_to_leaf"]), 0.7, ">=",
           size=("cascade", "events", 400_000)),
    Target("9", "writers refused while the root moves, median", "s",
           lambda r: float(r["takeover"]["median"]), 2.0, size=("takeover", "rate", 500)),
    Target("10", "a mask of two columns, an event more than plain replay", "µs",
           lambda r: float(r["handlers"]["median_us"]), 1.0,
           size=("handlers", "events", 200_000)),
    Target("10", "a table without handler, beside one with a mask to alone", "ratio",
           lambda r: float(r["handlers"]["plain_to_bare"])),
    Target("8", "CPU of an idle worker", "% of a core",
           _footprint("idle", "vedur", "worker", "cpu_percent"),
           limit=2.0, size=("footprint", "idle_seconds", 60)),
    Target("8", "from the command to the first batch", "s",
           _footprint("start", "vedur", "median"), 15.0),
    Target("8", "memory of a worker at rest, Java and tasks with it", "MB",
           _footprint("idle", "vedur", "worker", "rss_mb")),
)  # fmt: skip
