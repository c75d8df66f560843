"""Cycle after cycle: draw a fault, break, wait for the recovery, look at everything, record it.

A failure ends the campaign and leaves all evidence in place: logs, data directories, the draw.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture import checks
from tests.torture.faults import NotReached, Skipped
from tests.torture.labs import faults_of, make_laboratory
from tests.torture.neutral import neutral
from tests.torture.steps import is_dear


@dataclass
class Campaign:
    """`seed` decides the draws, the moments and the load; the machine decides the rest."""

    seed: int
    results: Path | None = None
    only: str = ""
    cheap: bool = False
    #: sets of faults: of the first that has any left, each is drawn once; then all are
    first: tuple[frozenset[str], ...] = ()
    say: bool = True
    lab: str = "pair"
    plain: bool = False
    #: rest between two cycles while the machine's load average is above this
    most_load: float = math.inf
    outcomes: Counter[str] = field(default_factory=Counter)
    _tried: Counter[str] = field(default_factory=Counter)
    _offsets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.laboratory = make_laboratory(self.lab, self.plain, shared_spark=not self.cheap)
        self.rig = self.laboratory.rig
        self.faults = faults_of(self.lab, self.plain)
        self.commit = _commit()

    def __enter__(self) -> Campaign:
        try:
            self.laboratory.start(self.seed)
        except BaseException as error:
            self.rig.close(keep=not isinstance(error, KeyboardInterrupt))
            raise
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.laboratory.load.stop()
        keep = kind is not None and not issubclass(kind, KeyboardInterrupt)  # type: ignore[arg-type]
        self.rig.close(keep=keep)
        if keep:
            self._say(f"evidence: {self.rig.base}")

    # -- cycles ---------------------------------------------------------------------------------

    def run(self, cycles: int, minutes: float | None = None) -> None:
        """Until so many cycles count, or the time is over, or there is a file named `stop`."""
        end = time.monotonic() + minutes * 60 if minutes else None
        stop = self.rig.base / "stop"
        while self.outcomes["recovered"] < cycles and (end is None or time.monotonic() < end):
            if stop.exists():
                return
            if os.getloadavg()[0] > self.most_load:
                time.sleep(5.0)
                continue
            self.cycle(self.draw())

    def draw(self) -> str:
        """A fault by its weight; what was tried often comes up less."""
        parts = self.only.split("|")
        names = [
            n
            for n in self.faults
            if any(part in n for part in parts) and not (self.is_cheap and is_dear(n, self.plain))
        ]
        if not names:
            raise SystemExit(f'no fault is called "{self.only}"')
        for wanted in self.first:
            if left := [n for n in names if n in wanted and not self._tried[n]]:
                names = left
                break
        weights = [self.faults[n][0] / (1 + self._tried[n]) for n in names]
        return self.rng.choices(names, weights)[0]

    @property
    def is_cheap(self) -> bool:
        """Leave out what starts Spark; can be switched by files named `cheap` and `dear`."""
        if (self.rig.base / "dear").exists():
            return False
        return self.cheap or (self.rig.base / "cheap").exists()

    def cycle(self, name: str) -> dict[str, Any]:
        """One fault from beginning to end; raises where a check fails."""
        self._tried[name] += 1
        number = sum(self.outcomes.values()) + 1
        c = self.laboratory.make_cycle(random.Random(f"{self.seed} {number} {name}"))
        c.cheap = self.is_cheap
        record: dict[str, Any] = {"seed": self.seed, "cycle": number, "fault": name}
        if self.lab != "pair":
            record["lab"] = self.lab
        if self.plain:
            record["plain"] = True
        began = time.monotonic()
        try:
            self.laboratory.load.resume()
            outcome = self._break(c, name, record)
            recovery = self.laboratory.recover(c)
            record |= self._look(c)
        except KeyboardInterrupt:
            raise  # somebody has ended it: that proves nothing
        except BaseException as error:
            record |= {"outcome": "FAILED", "error": repr(error)[:2000], "note": c.note}
            self._write(record)
            self._keep_evidence(error)
            raise
        record |= {
            "outcome": outcome,
            "recovery": round(recovery, 2),
            "seconds": round(time.monotonic() - began, 2),
            "note": c.note,
            "machine": round(os.getloadavg()[0], 1),
            "commit": self.commit,
        }
        self.outcomes[outcome] += 1
        self._write(record)
        self._say(
            f"{number:4d} {outcome:10s} {record['recovery']:6.1f} s of {record['seconds']:6.1f} s  "
            f"{name}  {json.dumps(c.note)}"
        )
        return record

    def _break(self, c: Any, name: str, record: dict[str, Any]) -> str:
        try:
            self.faults[name][1](c)
        except NotReached as error:
            record["reason"] = str(error)
            return "not reached"
        except Skipped as error:
            record["reason"] = str(error)
            return "skipped"
        finally:
            self.rig.disarm()
        return "recovered"

    def _look(self, c: Any) -> dict[str, Any]:
        found = self.laboratory.look(c)
        bugs = checks.log_bugs(self.rig, self._offsets)
        if bugs:
            raise checks.Failed(f"an error of our own in a log: {bugs[0][:300]}")
        return found

    # -- telling --------------------------------------------------------------------------------

    def _write(self, record: dict[str, Any]) -> None:
        if self.results is not None:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            with self.results.open("a") as out:
                out.write(neutral(json.dumps(record), {self.rig.base: "LAB"}) + "\n")

    def _keep_evidence(self, error: BaseException) -> None:
        (self.rig.base / "failure.txt").write_text("".join(traceback.format_exception(error)))
        for process in self.rig.processes.values():
            process.held.set()
        for name in self.rig.servers:
            log = self.rig.servers[name].logfile
            if log.exists():
                shutil.copy(log, self.rig.base / "log" / f"postgres.{name}.log")

    def _say(self, text: str) -> None:
        if self.say:
            print(text, flush=True)


def _commit() -> str:
    here = Path(__file__).resolve().parents[2]
    if (here / "COMMIT").exists():  # a copy of the tree, made for a run
        return (here / "COMMIT").read_text().strip()
    done = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()
