"""`python -m tests.torture`: run the campaign; exit code 1 with the first failure."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

from tests.torture.campaign import Campaign
from tests.torture.labs import faults_of
from tests.torture.rig import LABS

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "torture.jsonl"


def recovered(path: Path, lab: str) -> frozenset[str]:
    """Names of the faults that the record has a recovery of, in a laboratory."""
    found = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return frozenset(
        r["fault"] for r in found if r["outcome"] == "recovered" and r.get("lab", "pair") == lab
    )


def main() -> int:
    """Parse, run, count."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--lab", choices=sorted(LABS), default="pair", help="which laboratory")
    parser.add_argument("--plain", action="store_true", help="workers without Spark: see plain.py")
    parser.add_argument("--cycles", type=int, default=10**9, help="end after so many recoveries")
    parser.add_argument("--minutes", type=float, default=None, help="end after so many minutes")
    parser.add_argument("--seed", type=int, default=None, help="repeats draws and moments")
    parser.add_argument("--only", default="", help="faults whose name contains this")
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
    seed = args.seed if args.seed is not None else int(time.time()) % 1_000_000
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    try:
        done = recovered(RESULTS, args.lab) if args.untried else frozenset()
        with Campaign(
            seed,
            args.results,
            args.only,
            args.cheap,
            done,
            lab=args.lab,
            plain=args.plain,
            most_load=args.most_load,
        ) as campaign:
            print(f"ready after {time.monotonic() - began:.1f} s: {campaign.rig.base}", flush=True)
            campaign.run(args.cycles, args.minutes)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        print(f"FAILED with seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    outcomes = ", ".join(f"{n} {what}" for what, n in sorted(campaign.outcomes.items()))
    print(f"{outcomes}, 0 differences in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
