"""Plots of what was measured, as SVG: light, with labels, the same file for the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bench.stats import quantiles_of_rounds

OURS, OTHERS = "#5fb3d4", "#c3c8ce"  # black figures stand on both
plt.rcParams |= {
    "svg.hashsalt": "vedur",
    "svg.fonttype": "none",
    "font.size": 11,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _bars(axis: Any, title: str, result: Mapping[str, Mapping[str, float]]) -> None:
    """Draw medians with their spread, the fastest on top."""
    rows = sorted(result.items(), key=lambda item: -item[1]["median"])
    names = [name for name, _ in rows]
    middle = [row["median"] for _, row in rows]
    error = [[row["median"] - row["min"] for _, row in rows],
             [row["max"] - row["median"] for _, row in rows]]  # fmt: skip
    colours = [OURS if name == "vedur" else OTHERS for name in names]
    axis.barh(names, middle, xerr=error, color=colours, ecolor="#444444", capsize=3)
    for at, value in enumerate(middle):
        axis.text(0, at, f" {value:.2f} s", va="center", ha="left", color="black")
    axis.set_title(title, loc="left")
    axis.set_xlabel("seconds, median and spread")


def _apply(report: Mapping[str, Any], figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    _bars(left, f"catching up with {report['events']:,} events", report["catch_up"])
    _bars(right, "UPDATE of 200,000 rows to visible", report["bulk"])


def _copy(report: Mapping[str, Any], figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    _bars(left, f"first copy of {report['rows']:,} rows", report["large"]["summary"])
    _bars(right, "first copy of four small tables", report["small"]["summary"])


def _latency(report: Mapping[str, Any], figure: Any) -> None:
    axis = figure.subplots()
    rows = quantiles_of_rounds(report["rounds"])
    for shift, (key, shade) in enumerate((("p50", 1.0), ("p90", 0.65), ("p99", 0.35))):
        places = [at + (1 - shift) * 0.27 for at in range(len(rows))]
        colours = [OURS if name == "vedur" else "#555b61" for name in rows]
        bars = axis.barh(places, [row[key] for row in rows.values()], 0.25, color=colours)
        for bar in bars:
            bar.set_alpha(shade)
        axis.bar_label(bars, [f"{key} {row[key]:.3f} s" for row in rows.values()], padding=4)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_xlabel("seconds from commit to visible (logarithmic)")
    axis.set_title(f"latency at {report['rate']} transactions a second", loc="left")


def _lines(figure: Any, rows: Sequence[Mapping[str, Any]], key: str, label: str) -> None:
    left, right = figure.subplots(1, 2)
    sizes = [row[key] for row in rows]
    left.plot(sizes, [row["us_per_event"] for row in rows], "o-", color=OURS)
    left.set(xscale="log", xlabel=label, ylabel="µs per event", ylim=(0, None))
    left.set_title("time per event", loc="left")
    for role in sorted({role for row in rows for role in row["rss"]}):
        right.plot(sizes, [row["rss"].get(role, 0) for row in rows], "o-", label=role)
    right.set(xscale="log", xlabel=label, ylabel="MB, at most", ylim=(0, None))
    right.set_title("resident memory", loc="left")
    right.legend(frameon=False)


def draw(reports: Mapping[str, Any], place: Path) -> list[Path]:
    """Draw all plots that have figures."""
    jobs: dict[str, Any] = {}
    for name, make in (("apply", _apply), ("copy", _copy), ("latency", _latency)):
        if name in reports:
            jobs[name] = lambda figure, make=make, name=name: make(reports[name], figure)
    scale = reports.get("scale", {})
    for key, label in (("events", "events of the backlog"), ("tables", "tables, all changed")):
        if scale.get(key):
            jobs[f"scale_{key}"] = lambda figure, key=key, label=label: _lines(
                figure, scale[key], key, label
            )
    made = []
    for name, job in jobs.items():
        figure = plt.figure(figsize=(10, 4), layout="constrained")
        job(figure)
        target = place / f"{name}.svg"
        figure.savefig(target, metadata={"Date": None})
        plt.close(figure)
        made.append(target)
    return made
