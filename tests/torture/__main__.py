"""`python -m tests.torture`: run the campaign; exit code 1 with the first failure."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.torture.campaign import Campaign
from tests.torture.labs import LABS, faults_of
from tests.torture.steps import what_and_step

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "torture.jsonl"


def untried(path: Path, lab: str) -> tuple[frozenset[str], frozenset[str]]:
    """Faults that the record has no recovery of: in no laboratory, at no place where a process
    comes to the same step; and in this laboratory."""
    found = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    good = [r for r in found if r["outcome"] == "recovered"]
    anywhere = {what_and_step(r["fault"]) for r in good}
    here = {r["fault"] for r in good if r.get("lab", "pair") == lab}
    faults = faults_of(lab)
    # one of each: where else the step can be broken matters less than the next step
    new = {what_and_step(name): name for name in faults if what_and_step(name) not in anywhere}
    return (
        frozenset(new.values()),
        frozenset(name for name in faults if name not in here),
    )


def main() -> int:
    """Parse, run, count."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--lab", choices=sorted(LABS), default="pair", help="which laboratory")
    parser.add_argument("--plain", action="store_true", help="workers without Spark: see plain.py")
    parser.add_argument("--cycles", type=int, default=10**9, help="end after so many recoveries")
    parser.add_argument("--minutes", type=float, default=None, help="end after so many minutes")
    parser.add_argument("--seed", type=int, default=None, help="repeats draws and moments")
    parser.add_argument("--only", default="", help="faults whose name contains this, or|this")
    parser.add_argument("--cheap", action="store_true", help="no fault that starts Spark again")
    parser.add_argument(
        "--untried", action="store_true", help="first what the campaign's record has no recovery of"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines are added here")
    parser.add_argument(
        "--most-load", type=float, default=math.inf, help="rest while the load average is above"
    )
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    args = parser.parse_args()
    if args.list:
        print("\n".join(sorted(faults_of(args.lab, args.plain))))
        return 0
    # whoever ends it wants its servers and workers to end with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = args.seed if args.seed is not None else int(time.time()) % 1_000_000
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    try:
        first = untried(RESULTS, args.lab) if args.untried else ()
        with Campaign(
            seed,
            args.results,
            args.only,
            args.cheap,
            first,
            lab=args.lab,
            plain=args.plain,
            most_load=args.most_load,
        ) as campaign:
            outcomes = campaign.outcomes
            print(f"ready after {time.monotonic() - began:.1f} s: {campaign.rig.base}", flush=True)
            campaign.run(args.cycles, args.minutes)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        print(f"FAILED with seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    told = ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items()))
    print(f"{told}, 0 differences in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
