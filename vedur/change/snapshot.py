"""Snapshots of transactions, as ticks and first copies have them; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A txid snapshot: xmin, xmax and the transactions in progress between them."""

    xmin: int
    xmax: int
    xip: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read `xmin:xmax:xip,xip`."""
        xmin, xmax, xip = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(x) for x in xip.split(",") if x))

    @property
    def text(self) -> str:
        """As the server writes it."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.xip)))}"

    def contains(self, txid: int) -> bool:
        """Had this transaction committed (or aborted) when the snapshot was taken?"""
        return txid < self.xmax and txid not in self.xip
