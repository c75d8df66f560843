"""The laboratory of eight parts: when it has recovered, and what is looked at then."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.torture.laboratory import RECOVERY
from tests.torture.merging import checks
from tests.torture.merging.cycle import MergeCycle
from tests.torture.merging.load import PartsLoad
from tests.torture.merging.rig import COMPANY, HALL, STAND, MergeRig
from tests.torture.merging.schema import PARTS
from tests.torture.processes import memory_of


class Merge:
    """Satisfies `Laboratory`."""

    def __init__(self, plain: bool) -> None:
        self.rig = MergeRig(plain)

    def start(self, seed: int) -> None:
        """Build everything, and begin to write."""
        self.load = PartsLoad(self.rig.connect, seed)
        self.rig.start()
        self._level()
        self.events = checks.CombinedEvents(self.rig)
        self.rotation = checks.Rotation()
        self.baseline = checks.Baseline(self.rig)
        self.load.start()

    def make_cycle(self, rng: random.Random) -> MergeCycle:
        """The tools of one cycle."""
        return MergeCycle(self.rig, self.load, rng)

    def recover(self, c: MergeCycle) -> float:
        """Writers rest; every place must come to a tick of now of each of its queues."""
        began = time.monotonic()
        for server in self.rig.servers.values():
            self.rig.wait(lambda server=server: server.running, "the servers", 180.0)
        self.load.awake()
        under_load = memory_of(c.worker.pid)
        self.load.pause()
        c.ticks = self._level()
        c.megabytes = max(under_load, memory_of(c.worker.pid))
        c.note["ticks"] = list(c.ticks.values())
        return time.monotonic() - began

    def _level(self) -> dict[str, int]:
        rig = self.rig
        ticks = rig.forced_ticks([(part, part) for part in PARTS], RECOVERY)
        self._await(ticks)
        # what the parts have brought is in the combined queue now
        ticks |= rig.forced_ticks([(HALL, COMPANY)], RECOVERY)
        self._await(ticks)
        for place in checks.MERGED:
            whole = lambda place=place: rig.unfinished_tables(place) == 0  # noqa: E731
            rig.wait(whole, f"copies of {place} to end", RECOVERY)
        return ticks

    def _await(self, ticks: dict[str, int]) -> None:
        for place, queue, _ in checks.readers():
            # a part that waits behind the combined queue moves with it
            if queue not in ticks or (place == STAND and COMPANY not in ticks):
                continue
            there = lambda p=place, q=queue: self.rig.position(p, q) >= ticks[q]  # noqa: E731
            self.rig.wait(there, f"{place} at tick {ticks[queue]} of {queue}", RECOVERY)

    def look(self, c: MergeCycle) -> dict[str, Any]:
        """Raise where anything differs, or was left behind; numbers for the record."""
        rows = checks.contents(self.rig)
        c.note["events"] = self.events.compare(c.ticks)
        checks.positions(self.rig)
        checks.scripts(self.rig)
        self.baseline.leftovers(self.rig)
        checks.status(self.rig, c.ticks)
        self.rotation.check(self.rig, c.ticks)
        c.megabytes = max(c.megabytes, memory_of(c.worker.pid))
        return {
            "rows": rows,
            "transactions": self.load.transactions,
            "megabytes": round(c.megabytes),
        }
