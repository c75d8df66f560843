"""python -m bench [--quick] [PART ...]

All parts one after the other, or those that are named, with a bar for the whole and one for the
part that runs; what a part says goes to build/bench/PART.log. A part that fails is named, the
others go on. After a run of all parts docs/performance.md and the plots are made from what was
measured, the README's table too.
--quick proves in some minutes that everything runs; its figures mean nothing and are kept apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from bench.progress import LINE, columns

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "bench"


@dataclass(frozen=True)
class Part:
    """One program of the benchmark."""

    name: str
    args: str = ""
    quick: str = ""


PARTS = (
    Part("capture", "", "--seconds 1 --rounds 1"),
    Part("apply", "--null-sink", "--events 20000 --rounds 1 --warm 0 --null-sink"),
    Part("copy", "", "--rows 20000 --rounds 1"),
    Part("latency", "--rounds 3", "--seconds 5 --rounds 1"),
    Part("cascade", "", "--events 20000 --rounds 1 --warm 0 --seconds 5"),
    Part("takeover", "", "--times 2 --seconds 2"),
    Part("compare", "--rounds 3 --plant --soak 300", "--rows 20000 --rounds 1"),
    Part(
        "scale",
        "--sizes 10000,100000,1000000,10000000 --giant 3000000 --tables 1,10,100,500",
        "--sizes 10000,20000 --giant 20000 --tables 1,10 --table-events 10000 --live 5",
    ),
    Part("handlers", "", "--rows 5000 --rounds 1 --warm 0"),
    Part("footprint", "", "--idle 10 --rounds 1"),
)


def run(part: Part, quick: bool, on_line: Callable[[str], None], env: dict[str, str]) -> int:
    """Run one part and wait for its end; every line is passed to `on_line` and logged."""
    words = (part.quick if quick else part.args).split()
    with (LOGS / f"{part.name}.log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-u", "-m", f"bench.{part.name}", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=env,
        )  # fmt: skip
        assert child.stdout
        try:
            for line in child.stdout:
                log.write(line)
                log.flush()
                on_line(line.rstrip())
        except KeyboardInterrupt:
            child.wait()  # it got the same signal, and clears up
            raise
        return child.wait()


def play(parts: list[Part], quick: bool) -> list[str]:
    """Run all parts; returns the names of those that failed."""
    failed = []
    env = dict(os.environ)
    if quick:
        env.setdefault("BENCH_RESULTS", str(LOGS / "quick"))
    with Progress(*columns()) as bar:
        whole = bar.add_task("benchmark", total=len(parts))
        for part in parts:
            task = bar.add_task(part.name, total=None)

            def show(line: str, task: object = task) -> None:
                step = LINE.match(line)
                if step:
                    bar.update(task, completed=int(step[1]), total=int(step[2]))  # type: ignore[arg-type]
                bar.console.print(step[3] if step else line, markup=False, highlight=False)

            if run(part, quick, show, env):
                failed.append(part.name)
                bar.console.print(f"{part.name} failed: see {LOGS / part.name}.log")
            bar.remove_task(task)
            bar.advance(whole)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    known = {part.name: part for part in PARTS}
    parser.add_argument("part", nargs="*", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="small sizes, only to see it run")
    args = parser.parse_args()
    unknown = [name for name in args.part if name not in known]
    if unknown:
        parser.error(f'unknown part "{unknown[0]}": one of {", ".join(known)}')
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        failed = play([known[n] for n in args.part] or list(PARTS), args.quick)
    except KeyboardInterrupt:
        sys.exit("stopped; reports of parts that ended are in bench/results")
    if not args.part and not args.quick:
        subprocess.run([sys.executable, "-m", "bench.report"], check=True, cwd=ROOT)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
