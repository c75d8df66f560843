"""The tools of one cycle of the laboratory of parts."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from tests.torture.checks import Failed
from tests.torture.merging.load import PartsLoad
from tests.torture.merging.rig import FULL, PLACES, MergeRig
from tests.torture.merging.schema import PARTS
from tests.torture.processes import Supervised

#: Seconds within which parts that nothing has happened to must have gone on.
GO_ON = 180.0


@dataclass
class MergeCycle:
    """`note` ends in the record."""

    rig: MergeRig
    load: PartsLoad
    rng: random.Random
    note: dict[str, Any] = field(default_factory=dict)
    cheap: bool = False
    #: the part that is broken, where a fault is one of a part
    part: str = ""
    #: where the queues were when all had recovered
    ticks: dict[str, int] = field(default_factory=dict)
    #: the most that the process of the eight queues and all below it took when it was looked at
    megabytes: float = 0.0

    def __post_init__(self) -> None:
        self.part = self.rng.choice(PARTS)

    @property
    def worker(self) -> Supervised:
        """The process of the eight queues."""
        return self.rig.processes["worker"]

    @property
    def site(self) -> str:
        """The server of the part."""
        return PLACES[self.part]

    def some_time(self, most: float = 1.2) -> None:
        """A random moment of the load."""
        time.sleep(self.rng.uniform(0.0, most))

    def others_go_on(self, *away: str) -> None:
        """What is broken in one queue of the process holds no other."""
        rest = [part for part in PARTS if part not in away]
        for part in self.rng.sample(rest, min(2, len(rest))):
            began = self.rig.last_tick(part, part)
            there = lambda p=part, b=began: self.rig.position(FULL, p) > b  # noqa: E731
            self.rig.wait(there, f"changes of {part} while {', '.join(away)} is away", GO_ON)
            self.note["others"] = self.note.get("others", 0) + 1

    def must_say_away(self, ini: str, node: str) -> None:
        """Asked with one ini, a node that is away is said to be away."""
        done = self.rig.command(ini, "status", "--json", timeout=200)
        if done.code != 0:
            raise Failed(f"status from {ini}: exit {done.code}: {done.err}")
        (told,) = [n for n in json.loads(done.out)["nodes"] if n["name"] == node]
        self.note["status"] = self.note.get("status", 0) + 1
        if told["type"] != "unreachable" or not told["failure"]:
            raise Failed(f"{node} is away, status says {told}")
