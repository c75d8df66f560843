"""python -m model [--short] [--only NAME]: scenarios must hold, planted mistakes must be found.

One line for each; the exit code is 1 where a line is not what it should be. The steps to an error
are left in build/model/NAME/trail.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from model.cases import MISTAKES, SCENARIOS
from model.spin import ModelError, missing_programs, search, trail

BUILD = Path(__file__).resolve().parents[1] / "build" / "model"


def main(argv: list[str] | None = None) -> int:
    """Check what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller scenarios, for tests")
    parser.add_argument("--only", metavar="NAME", help="one scenario, or one mistake")
    parser.add_argument("--build", type=Path, default=BUILD, help="where to work (build/model)")
    options = parser.parse_args(argv)
    if missing := missing_programs():
        print(
            f"model: not checked, {' and '.join(missing)} not found: apt-get install spin gcc "
            "libc6-dev",
            file=sys.stderr,
        )
        return 2
    wrong = 0
    for scenario in SCENARIOS:
        if options.only in (None, scenario.name):
            flags = scenario.chosen(options.short)
            wrong += _expect(options.build / scenario.name, scenario.says, flags, holds=True)
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    for mistake in MISTAKES:
        if options.only in (None, mistake.flag):
            chosen = by_name[mistake.scenario].chosen(not mistake.whole)
            flags = (*chosen, mistake.flag)
            name = f"{mistake.scenario}-{mistake.flag.lower()}"
            wrong += _expect(options.build / name, mistake.says, flags, holds=False)
    print("model: everything is as it should be" if not wrong else f"model: {wrong} line(s) wrong")
    return 1 if wrong else 0


def _expect(place: Path, says: str, flags: tuple[str, ...], *, holds: bool) -> int:
    began = time.monotonic()
    try:
        # a mistake is found early: a good compiler would take longer than the search
        found = search(flags, place, quick=not holds)
    except ModelError as error:
        print(f"WRONG  {place.name}: {error}")
        return 1
    spent = time.monotonic() - began
    if found.violated:
        (place / "trail.txt").write_text("\n".join(trail(flags, place)) + "\n", "utf-8")
    what = (
        f"{found.violated} after {found.depth} steps, see {place / 'trail.txt'}"
        if found.violated
        else f"{found.states:,} states" + ("" if found.whole else ", NOT ALL OF THEM")
    )
    right = found.holds if holds else bool(found.violated)
    word = ("holds" if holds else "found") if right else "WRONG"
    print(f"{word}  {place.name}: {says}: {what} ({spent:.0f} s)", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
