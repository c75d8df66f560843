"""The laboratories of one set, `pair` and `cascade`: what a cycle has, when it has recovered, and
what is looked at then."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.torture import checks
from tests.torture.faults import Cycle
from tests.torture.laboratory import RECOVERY
from tests.torture.load import Load
from tests.torture.queues import Queues
from tests.torture.rig import Rig


class Chain:
    """Satisfies `Laboratory`."""

    def __init__(self, lab: str, plain: bool, shared_spark: bool) -> None:
        self.rig = Rig(lab, plain, shared_spark)

    def start(self, seed: int) -> None:
        """Build everything, and begin to write."""
        self.rig.start()
        self.load = Load(lambda: self.rig.connect(self.rig.writer), seed).start()
        self.queues = [Queues(self.rig, node) for node in self.rig.nodes[1:-1]]
        self.baseline = checks.Baseline(self.rig)

    def make_cycle(self, rng: random.Random) -> Cycle:
        """The tools of one cycle."""
        return Cycle(self.rig, self.load, rng)

    def recover(self, c: Cycle) -> float:
        """Writers rest; all nodes must come to a tick of now, and copies to their end."""
        began = time.monotonic()
        self.load.pause()
        rig = self.rig
        rig.wait(lambda: rig.servers["root"].running and rig.last_tick(), "the root", 180.0)
        c.note["tick"] = rig.forced_tick(RECOVERY)
        for node in rig.followers:
            reached = lambda node=node: rig.position(node) >= c.note["tick"]  # noqa: E731
            rig.wait(reached, f"the {node} to come back", RECOVERY)
            whole = lambda node=node: rig.unfinished_tables(node) == 0  # noqa: E731
            rig.wait(whole, f"copies of the {node} to end", RECOVERY)
        return time.monotonic() - began

    def look(self, c: Cycle) -> dict[str, Any]:
        """Raise where anything differs, or was left behind; numbers for the record."""
        rows = checks.contents(self.rig)
        for queue in self.queues:
            c.note |= queue.compare(c.note["tick"])
        checks.positions(self.rig)
        checks.sequences(self.rig)
        self.baseline.leftovers(self.rig)
        checks.status(self.rig, c.note["tick"])
        for queue in self.queues:
            queue.rotated(c.note["tick"])
        return {"rows": rows, "transactions": self.load.transactions}
