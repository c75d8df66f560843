"""Medians, ratios within a round, and their spread: the arithmetic of every report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Summary = dict[str, dict[str, float]]


def summary(runs: Mapping[str, Sequence[float]], of: str = "native") -> Summary:
    """Compute medians with their spread, and ratios to one of them taken within each round.

    What disturbs a machine hits a round as a whole, so ratios are steadier than seconds.
    """
    found: Summary = {}
    for name, values in runs.items():
        row = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        if of in runs:
            ratios = [v / n for v, n in zip(values, runs[of], strict=True)]
            row |= {
                "ratio": statistics.median(ratios),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
        found[name] = row
    return found


def ratio(
    runs: Mapping[str, Sequence[float]], one: str, other: str
) -> tuple[float, float, float] | None:
    """Return the median, smallest and largest ratio of one to another within rounds."""
    if one not in runs or other not in runs:
        return None
    found = [a / b for a, b in zip(runs[one], runs[other], strict=True)]
    return statistics.median(found), min(found), max(found)


def spread(row: Mapping[str, float]) -> str:
    """Format `1.13 (1.09..1.18)`."""
    if "ratio" not in row:
        return ""
    return f"{row['ratio']:.2f} ({row['ratio_min']:.2f}..{row['ratio_max']:.2f})"


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99 and the largest."""
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cut[49], "p90": cut[89], "p99": cut[98], "max": max(values)}


def text_table(title: str, result: Summary, of: str = "native", events: int = 0) -> str:
    """Format a summary for the terminal."""
    lines = ["", title, f"{'':12} {'seconds':>9} {'min':>8} {'max':>8}   ratio to {of} (min..max)"]
    for name, row in result.items():
        rate = f"  {events / row['median']:>9,.0f} events/s" if events else ""
        lines.append(
            f"{name:12} {row['median']:9.2f} {row['min']:8.2f} {row['max']:8.2f}"
            f"   {spread(row)}{rate}"
        )
    return "\n".join(lines)


def quantiles_of_rounds(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Compute medians over rounds of the quantiles of each peer."""
    peers = dict.fromkeys(row["peer"] for row in rounds)
    return {
        peer: {
            key: statistics.median(row[key] for row in rounds if row["peer"] == peer)
            for key in ("p50", "p90", "p99", "max")
        }
        for peer in peers
    }
