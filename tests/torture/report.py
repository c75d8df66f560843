"""`python -m tests.torture.report`: docs/reliability.md from the records of all campaigns.

Cycles that did not come to their step are counted apart and prove nothing; failures are shown.
The paragraph about load without faults is made from the record of `make torture-load`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.torture.labs import faults_of
from tests.torture.soak_verdict import load_section
from tests.torture.steps import TITLES, what_and_step
from vedur.failpoint import POINTS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "torture.jsonl"
LOAD = ROOT / "bench" / "results" / "load.json"
PAGE = ROOT / "docs" / "reliability.md"
FINDINGS = Path(__file__).with_name("findings.md")
#: "seed/cycle" of a stop -> what it turned out to be, written by whoever looked at the evidence.
VERDICTS = Path(__file__).with_name("verdicts.json")
Record = dict[str, Any]
_STEP = "what happened, and at which step"
#: What the page calls the laboratories.
_LABS = {
    "pair": "Root and leaf",
    "cascade": "Root, branch and leaf",
    "merge": "Eight parts into one",
}

_HEAD = """\
# Reliability

<!-- made by python -m tests.torture.report: do not edit -->

`make torture` breaks running nodes under load, again and again, and looks after every break
whether anything was lost, doubled or left behind. This page is made from its records
(`bench/results/torture.jsonl`).

**{recovered} crash-recover cycles, {differences} differences.** {seeds} runs, {transactions}
transactions of load, medians and maxima of the time until all nodes were at a tick of now again.
The machine (2 cores) was shared with other builds: load average {load_low} to {load_high}, median
{load_mid}, so times are upper bounds.

## The laboratories

**Root and leaf.** Root on PostgreSQL 16, leaf on PostgreSQL 18, a TCP proxy between the worker and
each of them, the ticker with maintenance and rotated tables every 2 seconds, worker processes that
are started again when they are dead, as systemd would. Load: inserts, updates, key updates,
deletes, swaps of unique values, savepoints and rollbacks, transactions of up to 1,500 rows,
TRUNCATE, cascading foreign keys, sequences, values of 30 types, TOAST; twelve tables, one of them
filtered and under another name on the leaf.

**Root, branch and leaf** (`--lab cascade`). A branch on PostgreSQL 15 between the two, with a
ticker of its own on its server. Each fault of the first laboratory breaks here the leaf below the
branch, or the branch; besides, the leaf moves between the two, further nodes are created and
dropped, the branch gets another name. And the root moves: the branch takes over from it while it
works, or when its server is gone, the old root is brought back, and takes over again; after a fault
the same command is given again, or `--abort`, and writers count what they have committed. A
takeover or failover that has promoted nobody is undone, also where the branch is gone meanwhile.
For single cycles the branch has a table of which it passes on its own shard only.
{plain} of its cycles had workers that carry their tasks themselves, without Java, so that killing
them at every step is cheap (`--plain`).

**Eight parts into one** (`--lab merge`). Eight roots, four on PostgreSQL 16 and four on 15, with a
writer each, come together in one database on PostgreSQL 18, and one process has the workers of its
eight queues; another one has those of the roots. Three tables are merged without telling whose rows
are whose (`--merge-all`), one with a condition for each part, and one, whose keys all parts have,
with a part column. Two of the parts are also merged into a combined queue, with a branch below it
on which the parts wait and which takes over. Each database
can be cut off alone, and where that lasts, changes of the others must go on arriving. After a fault
each merged table must be the union of its parts, row by row, each position a tick of its queue, the
combined queue must have had every change of its parts once, and a script that all parts have sent
must have been run once, or once for each where it says so. {merge_plain} of its cycles had workers
without Java.{memory}

A cycle draws a fault and breaks things at a random moment, or when a process comes to a named step
(`vedur/failpoint.py`; only code of the tests can arm one). "Another fault" means that the process
is held at the step while something else breaks: a server crashes, the network is cut, backends
are terminated, Java is killed. After the fault nobody helps. Then writers rest, and this must hold:

- every node comes to a tick written after the fault, every copy to its end;
- all rows are equal (md5 over all rows of each table, taken on all servers by the campaign's own
  statements), and columns, indexes and foreign keys too;
- the queue of the branch has had all ticks of the root's, each with the same events in all columns
  (without those of the other shard, where it passes on its own), read side by side by a consumer
  without a gap; both queues are rotated;
- each provider knows the position of the node below, sequences are not behind;
- no staging table, slice, consumer, hold, connection, old snapshot, prepared transaction,
  advisory lock, process or temporary file is left;
- `status` says that all is well; and while a node was away, a worker dead or a disk full, it had
  said so.
"""


def load(paths: Iterable[Path]) -> list[Record]:
    """All records."""
    found = []
    for path in paths:
        found += [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    for r in found:
        if r["outcome"] == "recovered" and r["note"].get("signals") == 0:
            r |= {"outcome": "not reached", "reason": "no statement was running"}
    return found


def page(records: list[Record], load: Record | None = None) -> str:
    """The whole page; `load` is the record of a campaign of load."""
    good = [r for r in records if r["outcome"] == "recovered"]
    bad = [r for r in records if r["outcome"] == "FAILED"]
    loads = sorted(r["machine"] for r in good) or [0.0]
    runs: dict[int, int] = defaultdict(int)
    for r in good:
        runs[r["seed"]] = max(runs[r["seed"]], r["transactions"])
    text = _HEAD.format(
        recovered=f"{len(good):,}",
        differences=sum("root has" in r["error"] and not _verdict(r).get("mistake") for r in bad),
        seeds=len(runs),
        transactions=f"{sum(runs.values()):,}",
        load_low=loads[0],
        load_high=loads[-1],
        load_mid=f"{statistics.median(loads):.1f}",
        plain=sum(bool(r.get("plain")) for r in good if _lab(r) == "cascade"),
        merge_plain=sum(bool(r.get("plain")) for r in good if _lab(r) == "merge"),
        memory=_memory([r for r in good if _lab(r) == "merge" and not r.get("plain")]),
    )
    for lab, title in _LABS.items():
        here = [r for r in records if _lab(r) == lab]
        if not here and lab != "pair":
            continue
        moments = [r for r in here if not what_and_step(r["fault"])[1]]
        steps = [r for r in here if what_and_step(r["fault"])[1]]
        fine = [r for r in good if _lab(r) == lab]
        text += f"\n## {title}: {len(fine):,} cycles\n"
        text += "\n### Faults at random moments\n\n" + _table(moments, "fault")
        text += "\n### Faults at named steps\n\n" + _table(steps, _STEP)
        text += "\n### What broke while a process was held at a step\n\n" + _meanwhile(fine)
        text += _not_reached(here) + _untried(lab, fine)
    text += _named_steps(good)
    text += _stops(bad)
    if load is not None:
        text += "\n" + load_section(load)
    text += "\n" + FINDINGS.read_text("utf-8")
    seeds = ", ".join(f"{seed} ({_count(good, seed)})" for seed in sorted(runs))
    text += f"\n## Seeds\n\nSeed (cycles that recovered): {seeds}.\n"
    text += "Draws and moments repeat with `--seed`; what the machine does meanwhile does not.\n"
    return text


def _memory(good: list[Record]) -> str:
    """What the process of eight queues took; nothing where no cycle has looked."""
    found = [r["megabytes"] for r in good if "megabytes" in r]
    if not found:
        return ""
    return (
        "\nIn the others the process of the eight queues, its Java and its tasks took"
        f" {max(found):,} MB at most,\n{statistics.median(found):,.0f} MB in the median of"
        f" {len(found)} cycles (under load, after the recovery and in the end;\n"
        "shared pages counted once)."
    )


def _lab(record: Record) -> str:
    return str(record.get("lab", "pair"))


def _count(records: list[Record], seed: int) -> int:
    return sum(r["seed"] == seed for r in records)


def _table(records: list[Record], title: str) -> str:
    groups: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        groups[r["fault"]].append(r)
    lines = [f"| {title} | tried | recovered | median s | max s |", "|---|--:|--:|--:|--:|"]
    for name in sorted(groups, key=_place):
        tried = [r for r in groups[name] if r["outcome"] in ("recovered", "FAILED")]
        good = [r["recovery"] for r in tried if r["outcome"] == "recovered"]
        if not tried:
            continue
        times = f"{statistics.median(good):.1f} | {max(good):.1f}" if good else "– | –"
        lines.append(f"| {name} | {len(tried)} | {len(good)} | {times} |")
    return "\n".join(lines) + "\n"


def _place(name: str) -> tuple[str, str]:
    """Split the name of a fault: the step and the node, none for a random moment, and what it is.
    Faults are listed in this order."""
    if not what_and_step(name)[1]:
        return ("", name)
    what, _, where = name.partition(" at ")
    return (where, what)


def _meanwhile(good: list[Record]) -> str:
    groups: dict[str, list[float]] = defaultdict(list)
    for r in good:
        if "meanwhile" in r["note"]:
            groups[r["note"]["meanwhile"]].append(r["recovery"])
    lines = ["| what | times | median s | max s |", "|---|--:|--:|--:|"]
    for name, times in sorted(groups.items()):
        middle = statistics.median(times)
        lines.append(f"| {name} | {len(times)} | {middle:.1f} | {max(times):.1f} |")
    return "\n".join(lines) + "\n"


def _not_reached(records: list[Record]) -> str:
    missed: dict[str, list[str]] = defaultdict(list)
    for r in records:
        if r["outcome"] in ("not reached", "skipped"):
            missed[r["outcome"]].append(r.get("reason", ""))
    if not missed:
        return ""
    text = "\nNot counted: "
    text += "; ".join(
        f"{len(reasons)} cycles whose step did not come in time"
        if what == "not reached"
        else f"{len(reasons)} skipped ({', '.join(sorted(set(reasons)))})"
        for what, reasons in sorted(missed.items())
    )
    return text + " (their cycles were checked like all others).\n"


def _untried(lab: str, good: list[Record]) -> str:
    """What the campaign can do and has no record of: nobody should take it for tested."""
    faults = faults_of(lab)
    left = sorted(faults.keys() - {r["fault"] for r in good}, key=_place)
    if not left:
        return ""
    text = f"\n### Not tried yet\n\n{len(left)} of {len(faults)} faults have no record:\n"
    groups: dict[str, list[str]] = defaultdict(list)
    for name in left:
        step, what = _place(name)
        groups[step or "at random moments"].append(what)
    return text + "\n" + "\n".join(f"- {s}: {', '.join(w)}" for s, w in groups.items()) + "\n"


def _named_steps(good: list[Record]) -> str:
    """How often every step of the product was broken in each of the three ways, in any laboratory;
    first whether none is missing."""
    ways = [TITLES[action] for action in ("error", "kill", "hold")]
    drawn = {step for lab in _LABS for _, step in map(what_and_step, faults_of(lab)) if step}
    times = Counter(what_and_step(r["fault"]) for r in good)
    steps = [f"{work}.{what}" for work, whats in POINTS.items() for what in whats]
    part = [s for s in steps if s in drawn and not all(times[way, s] for way in ways)]
    never = [step for step in steps if step not in drawn]
    whole = len(steps) - len(part) - len(never)
    text = "\n## Named steps of all laboratories\n\n"
    text += f"Of {len(steps)} named steps of the product, {whole} have a record of an error, "
    text += "a kill -9 and another fault, in one laboratory or another.\n"
    if part:
        text += f"\n{len(part)} lack one or more of them: {', '.join(part)}.\n"
    if never:
        text += f"\n{len(never)} are broken by no fault of the campaign, but by other tests only: "
        text += ", ".join(never) + ".\n"
    text += f"\n| step | {' | '.join(ways)} |\n|---|--:|--:|--:|\n"
    for step in steps:
        text += f"| {step} | {' | '.join(str(times[way, step] or '–') for way in ways)} |\n"
    return text


def _verdict(r: Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VERDICTS.read_text()).get(f"{r['seed']}/{r['cycle']}", {})
    return found


def _stops(bad: list[Record]) -> str:
    """Every time the campaign stopped, in its own words."""
    if not bad:
        return ""
    lines = ["", "## Where the campaign stopped", ""]
    lines += ["A stop keeps the evidence; after it somebody looked, and this is what it was.", ""]
    for r in bad:
        words = str(r["error"]).splitlines()[0][:200].replace("|", "/")
        found = _verdict(r)
        whose = "The campaign's own mistake" if found.get("mistake") else "The product"
        what = f"{whose}: {found['text']}." if found else "Not looked into yet."
        lines.append(f"- Seed {r['seed']}, cycle {r['cycle']}, {r['fault']}: `{words}` {what}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.report", description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, default=[RESULTS])
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--load", type=Path, default=LOAD)
    args = parser.parse_args()
    campaign = json.loads(args.load.read_text()) if args.load.exists() else None
    args.page.write_text(page(load(args.results), campaign))


if __name__ == "__main__":
    main()
