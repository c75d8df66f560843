"""Runs spin on a model: generate, compile, search, and read what it found."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parent / "takeover.pml"
#: Megabytes that one search may use; a search that would need more is not exhaustive and fails.
MEMORY = 6000
_STATES = re.compile(r"^\s*([\d.e+]+) states, stored", re.MULTILINE)
_ERRORS = re.compile(r"errors: (\d+)")
_VIOLATED = re.compile(r"^pan:1: (.*?) \(at depth (\d+)\)", re.MULTILINE)


class ModelError(Exception):
    """The model could not be searched: one sentence says why."""


@dataclass(frozen=True)
class Search:
    """What a search found: `violated` is empty where everything holds."""

    states: int
    violated: str
    depth: int
    whole: bool

    @property
    def holds(self) -> bool:
        """Whether every state was looked at, and none is wrong."""
        return self.whole and not self.violated


def missing_programs() -> list[str]:
    """Return what is needed and not installed."""
    return [name for name in ("spin", "gcc") if shutil.which(name) is None]


def search(flags: Sequence[str], place: Path, *, quick: bool = False) -> Search:
    """Search the model with `flags`, in the directory `place`, to the first error or to the end.

    `quick` saves the time of a good compiler, for searches that are short.
    """
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODEL, place / MODEL.name)
    _run(["spin", "-a", *(f"-D{flag}" for flag in flags), MODEL.name], place)
    better = "-O0" if quick else "-O2"
    made = ["-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY}", "-o", "pan", "pan.c"]
    _run(["gcc", better, "-w", *made], place)
    # -E: processes that wait for ever are right; the judge says what must be true then
    return read_search(_run(["./pan", "-E", "-n", "-w24", "-m300000"], place))


def read_search(said: str) -> Search:
    """Read the report of a search; pure."""
    states, errors = _STATES.search(said), _ERRORS.search(said)
    if states is None or errors is None:
        raise ModelError(f"the search ended without a report: {said.strip()[-300:]}")
    violated = _VIOLATED.search(said)
    whole = not any(w in said for w in ("Search not completed", "max search depth too small"))
    count = int(float(states[1]))
    if int(errors[1]) == 0:
        return Search(count, "", 0, whole)
    if violated is None:
        raise ModelError(f"the search found an error and did not name it: {said.strip()[-300:]}")
    return Search(count, violated[1], int(violated[2]), whole)


def trail(flags: Sequence[str], place: Path) -> list[str]:
    """Return the steps that lead to the error that `search` found in `place`."""
    said = _run(
        ["spin", "-t", "-p", "-g", *(f"-D{flag}" for flag in flags), MODEL.name], place, check=False
    )
    return said.splitlines()


def _run(command: list[str], place: Path, *, check: bool = True) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if check and done.returncode != 0:
        raise ModelError(f"{command[0]} failed: {said.strip()[-500:]}")
    return said
