"""Who takes part in a run, and who fell out of it and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.peers.base import Peer
from bench.progress import Steps

#: Without these there is nothing to measure or nothing to hold it against: their errors end a run.
NEEDED = ("vedur", "native")


@dataclass
class Lineup:
    """The peers of a run; one that fails is closed and named, and the others go on."""

    peers: list[Peer]
    absent: dict[str, str] = field(default_factory=dict)

    def attempt(self, peer: Peer, action: Callable[[], object], doing: str, bar: Steps) -> bool:
        """Run an action of a peer; returns whether it succeeded. A peer that has failed is not
        asked again."""
        if peer not in self.peers:
            return False
        try:
            action()
        except Exception as error:
            if peer.name in NEEDED:
                raise
            self.peers.remove(peer)
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.absent[peer.name] = f"{doing}: {lines[-1]}"
            bar.say(f"{peer.name} falls out, {self.absent[peer.name]}")
            try:
                peer.close()
            except Exception as second:
                bar.say(f"{peer.name} does not end: {second}")
            return False
        return True
