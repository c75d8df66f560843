"""python -m bench.report: the figures of docs/performance.md and README.md, and plots, from
bench/results/*.json.

A page has places `<!-- bench:NAME -->` ... `<!-- /bench -->`; what is between is replaced, so
a figure on it always comes from a run. A part without a report is named as not measured.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.stats import Summary, quantiles_of_rounds, spread
from bench.targets import TARGETS, Reports

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
#: The pages, and where their plots are from there.
PAGES = {ROOT / "docs" / "performance.md": "images", ROOT / "README.md": "docs/images"}
#: In the order of the table of everyone.
PEERS = ("vedur", "native", "londiste", "pglogical", "slony", "bucardo5", "pipe")
_QUANTILES = ("p50", "p90", "p99")
_PLACE = re.compile(r"(<!-- bench:([a-z_]+) -->\n).*?(<!-- /bench -->)", re.S)


def load(place: Path) -> dict[str, Any]:
    """Read all reports by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(place.glob("*.json"))}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def seconds(result: Summary, of: str = "native", events: int = 0) -> str:
    """Format a summary as a table."""
    head = ["", "seconds, median (min..max)", f"ratio to {of} (min..max)"]
    if events:
        head.append("events/s")
    rows = []
    for name, row in result.items():
        cells = [name, f"{row['median']:.2f} ({row['min']:.2f}..{row['max']:.2f})", spread(row)]
        rows.append(cells + ([f"{events / row['median']:,.0f}"] if events else []))
    return table(head, rows)


def foot(report: Mapping[str, Any], loads: Sequence[float] = ()) -> str:
    """Format where and when it was measured, and who did not take part."""
    said = []
    where = report.get("machine")
    if where:
        said.append(
            f"{where['when'][:10]}, {where['cores']} cores, {where['memory_gb']} GB,"
            f" PostgreSQL {where['postgresql']}."
        )
    if loads:
        said.append(f"Load average before the rounds: {min(loads):.1f} to {max(loads):.1f}.")
    absent = report.get("absent", {})
    said += [f"{name} did not take part: {why}." for name, why in absent.items()]
    return "\n" + " ".join(said) if said else ""


def _targets(reports: Reports) -> str:
    rows = []
    for target in TARGETS:
        value = target.measured(reports)
        shown = "" if value is None else f"{value:.2f} {target.unit}".strip()
        limit = "" if target.limit is None else f"{target.sense} {target.limit:g} {target.unit}"
        rows.append([target.nr, target.what, shown, limit.strip(), target.verdict(reports)])
    return table(["", "target", "measured", "limit", ""], rows)


def _everyone(reports: Reports) -> str:
    """Format the medians of all peers, one row for each kind of work."""
    rows: list[tuple[str, dict[str, str]]] = []

    def add(what: str, found: Mapping[str, Mapping[str, float]], key: str = "median") -> None:
        rows.append((what, {name: f"{row[key]:.3g}" for name, row in found.items()}))

    if "apply" in reports:
        report = reports["apply"]
        add(f"catching up with {report['events']:,} events", report["catch_up"])
        add("UPDATE of 200,000 rows, commit to visible", report["bulk"])
    if "copy" in reports:
        report = reports["copy"]
        add(f"first copy of {report['rows']:,} rows with their key", report["large"]["summary"])
        small = report["small"]["summary"]
        add(f"first copy of four tables, {report['small_rows']:,} rows", small)
        if "many" in report:
            add("first copy of 100 tables, almost empty", report["many"]["summary"])
    if "latency" in reports:
        report = reports["latency"]
        found = quantiles_of_rounds(report["rounds"])
        add(f"latency at {report['rate']} transactions/s, p50", found, "p50")
        add("the same, p99", found, "p99")
    for count, report in reports.get("compare", {}).items():
        totals = {
            name: {"median": median(report[said]["total"])}
            for name, said in (("vedur", "ours"), ("londiste", "theirs"))
            if said in report
        }
        add(f"compare of {int(count):,} rows", totals)
    peers = [name for name in PEERS if any(name in cells for _, cells in rows)]
    lines = [[what, *(cells.get(name, "") for name in peers)] for what, cells in rows]
    return table(["seconds, medians", *peers], lines)


def _apply(reports: Reports) -> str:
    report = reports["apply"]
    events = report["events"]
    return "\n".join(
        [
            f"Catching up with {events:,} events, {report['rounds']} rounds:",
            "",
            seconds(report["catch_up"], events=events),
            "",
            "UPDATE of 200,000 rows, commit to visible:",
            "",
            seconds(report["bulk"]),
            *_null_sink(report),
            foot(report, report["loads"]),
        ]
    )


def _null_sink(report: Mapping[str, Any]) -> list[str]:
    """Say what reading and decoding alone took, where that was measured."""
    rows = report.get("null_sink", ())
    if not rows:
        return []
    took = median(row["seconds"] for row in rows)
    cpu = 1e6 * median(row["cpu"] / row["events"] for row in rows)
    return [
        "",
        f"A null sink, one process that reads and decodes the events of Vedur's backlog and writes "
        f"nothing: {took:.2f} s, {cpu:.2f} µs of its CPU an event.",
    ]


def _copy(reports: Reports) -> str:
    report = reports["copy"]
    blocks, loads = [], []
    for part, title in (
        ("large", f"{report['rows']:,} rows with their key"),
        ("small", f"Four tables, {report['small_rows']:,} rows in all"),
        ("many", "A hundred tables, 400 rows in all"),
    ):
        if part in report:
            summary = seconds(report[part]["summary"])
            blocks += [f"{title}, {report['rounds']} rounds:", "", summary, ""]
            loads += report[part]["loads"]
    return "\n".join([*blocks[:-1], foot(report, loads)])


def _latency(reports: Reports) -> str:
    report = reports["latency"]
    rows = [
        [peer, *(f"{row[q]:.3f}" for q in ("p50", "p90", "p99", "max"))]
        for peer, row in quantiles_of_rounds(report["rounds"]).items()
    ]
    head = [f"seconds at {report['rate']} transactions/s", "p50", "p90", "p99", "max"]
    return table(head, rows) + "\n" + foot(report, [r["load"] for r in report["rounds"]])


def _growth_row(first: str, row: Mapping[str, Any]) -> list[str]:
    memory = ", ".join(f"{role} {size}" for role, size in sorted(row["rss"].items()))
    return [
        first,
        f"{row['seconds']:.1f}",
        f"{row['us_per_event']:.1f}",
        str(row["batches"]),
        memory,
    ]


def _scale(reports: Reports) -> str:
    report = reports["scale"]
    head = ["seconds", "µs/event", "batches", "memory at most, MB"]
    rows = [_growth_row(f"{row['events']:,}", row) for row in report.get("events", ())]
    if "giant" in report:
        giant = report["giant"]
        rows.append(_growth_row(f"{giant['events']:,} in one transaction", giant))
    blocks = [table(["events", *head], rows)] if rows else []
    wide = [
        [*_growth_row(str(r["tables"]), r), f"{r['live']['p50']:.2f}", f"{r['live']['p99']:.2f}"]
        for r in report.get("tables", ())
    ]
    if wide:
        blocks += [
            "",
            f"The same {report['table_events']:,} changes over more tables; live: 1,000 changes"
            " over all of them twice a second, commit to visible:",
            "",
            table(["tables", *head, "live p50, s", "live p99, s"], wide),
        ]
    return "\n".join([*blocks, foot(report)])


def _footprint(reports: Reports) -> str:
    report = reports["footprint"]
    rows = []
    for peer, daemons in report["idle"].items():
        for what, row in daemons.items():
            roles = ", ".join(f"{role} {mb}" for role, mb in row["rss_mb_by_role"].items())
            rows.append([f"{peer}, {what}", f"{row['cpu_percent']:.2f}", str(row["rss_mb"]), roles])
    head = ["", f"% of a core, idle for {report['idle_seconds']} s", "resident MB", "of it"]
    title = f"From the command that starts a worker until {report['events']:,} waiting events"
    return "\n".join(
        [
            table(head, rows),
            "",
            f"{title} are applied:",
            "",
            seconds(report["start"], "londiste"),
            foot(report, [report["load"]]),
        ]
    )


def _capture(reports: Reports) -> str:
    report = reports["capture"]
    rows = [
        [name, f"{row['median']:,.0f}", spread(row),
         f"{report['bulk_seconds'][name]['median']:.2f}", spread(report["bulk_seconds"][name])]
        for name, row in report["tps"].items()
    ]  # fmt: skip
    head = ["", "login + logout, tps", "ratio to C", "UPDATE of 200,000 rows, s", "ratio to C"]
    return table(head, rows) + "\n" + foot(report, report["load_before_rounds"])


def _compare(reports: Reports) -> str:
    found = reports["compare"]
    blocks = []
    for rows, report in sorted(found.items(), key=lambda item: int(item[0])):
        lines = []
        for name, label in (("ours", "vedur"), ("theirs", "londiste")):
            if name in report:
                total = report[name]["total"]
                writer = report[name]["writer_ms"]
                lines.append([label, ", ".join(f"{t:.1f}" for t in total),
                              ", ".join(f"{k} {v}" for k, v in writer.items())])  # fmt: skip
        head = [f"{int(rows):,} rows", "seconds of each round", "a writer meanwhile, ms"]
        said = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in report["ratios"].items())
        blocks.append(f"{table(head, lines)}\n\nRatios: {said}.")
    return "\n\n".join(blocks)


_CASCADE_COSTS = {
    "of the provider's server, µs an event": "provider_us_per_event",
    "of both servers and the worker": "cpu_us_per_event",
}


def _cascade(reports: Reports) -> str:
    report = reports["cascade"]
    rows = [
        [name, *(f"{median([r[name][key] for r in report['latency']]):.3f}" for key in _QUANTILES)]
        for name in report["latency"][0]
    ]
    said = [
        f"{what}: " + ", ".join(f"{name} {median(values):.1f}" for name, values in cost.items())
        for what, key in _CASCADE_COSTS.items()
        if (cost := report.get(key))  # a report of before has one of them
    ]
    return "\n\n".join([
        seconds(report["catch_up"], "leaf_beside", events=report["events"]),
        f"A branch catches up at {report['rate_to_leaf']:.2f} of the rate of a leaf beside it. CPU "
        f"{'; '.join(said)}.",
        table([f"visible after, s, at {report['rate']} transactions/s", *_QUANTILES], rows),
        foot(report, report["loads"]).strip(),
    ])  # fmt: skip


def _takeover(reports: Reports) -> str:
    report = reports["takeover"]
    said = (
        f"Writers were refused for {report['median']:.2f} s (median of {report['times']} "
        f"takeovers, there and back, at {report['rate']} transactions a second), at most for "
        f"{report['max']:.2f} s."
    )
    return f"{said}\n\n{foot(report, report['loads']).strip()}"


BLOCKS: Mapping[str, tuple[Callable[[Reports], str], tuple[str, ...]]] = {
    "everyone": (_everyone, ()),
    "targets": (_targets, ()),
    "apply": (_apply, ("apply",)),
    "copy": (_copy, ("copy",)),
    "latency": (_latency, ("latency",)),
    "scale": (_scale, ("scale",)),
    "footprint": (_footprint, ("footprint",)),
    "capture": (_capture, ("capture",)),
    "compare": (_compare, ("compare",)),
    "cascade": (_cascade, ("cascade",)),
    "takeover": (_takeover, ("takeover",)),
}


#: The plots of a place, by the names of their files.
PLOTS = {
    "everyone": ("apply", "latency"),
    "apply": ("apply",),
    "copy": ("copy",),
    "latency": ("latency",),
    "scale": ("scale_events", "scale_tables"),
}


def block(name: str, reports: Reports, images: Sequence[str] = (), at: str = "images") -> str:
    """Return the text of one place, with its plots that exist."""
    make, needs = BLOCKS[name]
    if any(need not in reports for need in needs):
        return f"Not measured yet: `make bench PART={name}`."
    there = [plot for plot in PLOTS.get(name, ()) if plot in images]
    return "\n\n".join([make(reports), *(f"![{p}]({at}/bench_{p}.svg)" for p in there)])


def fill(page: str, reports: Reports, images: Sequence[str] = (), at: str = "images") -> str:
    """Return the page with all its places replaced; its plots are in `at`."""
    return _PLACE.sub(lambda m: f"{m[1]}\n{block(m[2], reports, images, at)}\n\n{m[3]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    from bench.plots import draw

    reports = load(args.results)
    plots = draw(reports, args.results)
    for path in plots:
        shutil.copyfile(path, ROOT / "docs" / "images" / f"bench_{path.name}")
        print(f"written: {path}")
    for page, at in PAGES.items():
        page.write_text(fill(page.read_text(), reports, [path.stem for path in plots], at))
        print(f"written: {page}")


if __name__ == "__main__":
    main()
