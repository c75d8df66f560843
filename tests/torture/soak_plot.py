"""The picture of a load campaign: lag, memory, sizes over time. Pure: a report in, SVG text out."""

from __future__ import annotations

import io
from typing import Any

_MEMORY = {
    "mb_java": "Java",
    "mb_driver": "driver",
    "mb_tasks": "Python tasks, all",
    "mb_pg_root": "PostgreSQL root, own memory",
    "mb_pg_leaf": "PostgreSQL leaf, own memory",
    "mb_ticker": "ticker",
    "mb_root_worker": "root's worker",
}


def draw(report: dict[str, Any]) -> str:
    """Three panels above each other; the same report gives the same text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = report["columns"]
    minutes = [t / 60 for t in columns["t"]]
    with mpl.rc_context({"svg.hashsalt": "vedur", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(10, 8), layout="constrained")
        lag, memory, sizes = figure.subplots(3, 1, sharex=True)
        lag.plot(minutes, columns["lag"], linewidth=0.8)
        lag.set_ylabel("lag, seconds")
        lag.set_title(f"{report['rate']} transactions a second for {report['minutes']:g} minutes")
        for key, label in _MEMORY.items():
            memory.plot(minutes, columns[key], linewidth=0.8, label=label)
        memory.set_ylabel("memory, MB")
        sizes.plot(minutes, columns["queue_mb"], linewidth=0.8, label="queue's event tables")
        sizes.plot(minutes, columns["stage_mb"], linewidth=0.8, label="staging tables")
        sizes.set_ylabel("size, MB")
        sizes.set_xlabel("minutes")
        for down in report["downs"]:
            lag.axvline(down["t"] / 60, linestyle=":", linewidth=0.8)
        for panel in (memory, sizes):
            panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        for panel in (lag, memory, sizes):
            panel.set_ylim(bottom=0)
            panel.grid(linewidth=0.3)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
