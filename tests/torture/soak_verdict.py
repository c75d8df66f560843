"""What a load campaign proves: verdicts and the paragraph of the page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_ROLES = {
    "mb_java": "Java",
    "mb_driver": "driver (Python)",
    "mb_tasks": "Spark's Python tasks, all",
    "mb_pg_root": "PostgreSQL on the root",
    "mb_pg_leaf": "PostgreSQL on the leaf",
    "mb_ticker": "ticker",
    "mb_root_worker": "root's worker",
}
_SIZES = {"queue_mb": "Event tables of the queue", "stage_mb": "Staging tables"}
#: Growth over the second half that counts as none: measuring and garbage collection do as much.
_SHARE, _LEAST_MB = 0.05, 8.0
#: A process whose memory keeps within this share over the last tenth has come to its level.
_LEVEL = 0.005


@dataclass(frozen=True)
class Trend:
    """How the memory of one kind of process moved in the second half."""

    role: str
    mean: float
    largest: float
    per_hour: float
    growth: float  # over the second half, by the fitted line
    range_at_end: float = 0.0  # between smallest and largest of the last tenth

    @property
    def verdict(self) -> str:
        """One word or two."""
        if self.steady:
            return "steady"
        level = self.range_at_end <= _LEVEL * self.largest
        return "levelled off" if level else "grows"

    @property
    def steady(self) -> bool:
        """No growth that could not be noise."""
        return self.growth <= max(_LEAST_MB, _SHARE * self.mean)


def slope(times: list[float], values: list[float]) -> float:
    """Of the line with the least squares; 0 for fewer than two times."""
    count = len(times)
    at, mean = sum(times) / count, sum(values) / count
    below = sum((t - at) ** 2 for t in times)
    if not below:
        return 0.0
    return sum((t - at) * (v - mean) for t, v in zip(times, values, strict=True)) / below


def trends(columns: dict[str, list[float]]) -> list[Trend]:
    """Of every kind of process, over the second half."""
    half = len(columns["t"]) // 2
    times = columns["t"][half:]
    found = []
    for key, role in _ROLES.items():
        values = columns[key][half:]
        by_second = slope(times, values)
        grown = by_second * (times[-1] - times[0])
        mean = sum(values) / len(values)
        end = columns[key][-max(2, len(columns[key]) // 10) :]
        spread = max(end) - min(end)
        found.append(Trend(role, mean, max(columns[key]), by_second * 3600, grown, spread))
    return found


def bounded(sizes: list[float]) -> bool:
    """Is the second half no higher than the first? Sizes go up and down with each rotation."""
    half = len(sizes) // 2
    return max(sizes[half:]) <= 1.5 * max(sizes[:half]) + _LEAST_MB


def load_section(report: dict[str, Any]) -> str:
    """The paragraph."""
    columns, steps = report["columns"], report["steps"]
    found = trends(columns)
    growing = [t.role for t in found if t.verdict == "grows"]
    level = [f"{t.role}'s at {t.largest:.0f} MB" for t in found if t.verdict == "levelled off"]
    memory = f"memory of {', '.join(growing)} grew" if growing else "no memory grew without end"
    if level:
        memory += f" ({' and '.join(level)} levelled off)"
    elif not growing:
        memory = "no memory grew"
    lags = sorted(columns["lag"])
    servers, proof = report["servers"], report["proof"]
    lines = [
        "## Load without faults",
        "",
        "`make torture-load` looks for the largest rate of small mixed transactions at which the",
        "lag stays bounded, and runs it while nothing is broken: does anything grow?",
        "",
        f"**{report['rate']} transactions a second for {report['minutes']:g} minutes, "
        f"{report['events']:,} events: largest lag {lags[-1]:.1f} s, "
        f"{columns['rotations'][-1]:g} tables rotated, "
        + memory
        + f", {proof['rows']:,} rows equal at the end.**",
        f"PostgreSQL {servers['root']} to {servers['leaf']}, {report['cpus']} cores for servers, "
        f"load and replication together, load average {report['machine']['before']} before and "
        f"{report['machine']['after']} after. Median lag {lags[len(lags) // 2]:.1f} s; after the "
        f"load ended the leaf was level in {proof['caught_up_seconds']} s, and `compare` and the "
        "campaign's own sums found both sides equal.",
    ]
    if steps:
        tried = ", ".join(
            f"{s['rate']} ({'bounded' if s['bounded'] else 'grows'}, {s['max_lag']:.1f} s)"
            for s in steps
        )
        lines.append(f"Rates tried, with the largest lag: {tried}.")
    if report["downs"]:
        said = ", ".join(f"to {d['rate']} after {d['t'] / 60:.0f} min" for d in report["downs"])
        lines.append(f"The rate had to step down: {said}.")
    lines += [
        "",
        "| process | mean MB, second half | largest MB | slope, MB an hour | verdict |",
        "|---|--:|--:|--:|---|",
        *(
            f"| {t.role} | {t.mean:.0f} | {t.largest:.0f} | {t.per_hour:+.1f} | {t.verdict} |"
            for t in found
        ),
        "",
        "Servers are counted without their shared buffers. "
        + " ".join(_size(columns[key], what) for key, what in _SIZES.items())
        + " A rotation was due every 30 s, and every 10 s nodes told where they are.",
        "",
        "![Lag, memory and sizes over time](images/load.svg)",
    ]
    return "\n".join(lines) + "\n"


def _size(sizes: list[float], what: str) -> str:
    verdict = "did not grow" if bounded(sizes) else "**grew**"
    return f"{what} {verdict}: at most {max(sizes):.0f} MB, {sizes[-1]:.0f} MB at the end."
