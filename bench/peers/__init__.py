"""The others: what Debian has, each with its defaults, and the choice of those of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.field import Field, Vedur
from bench.peers.base import Peer
from bench.peers.bucardo import Bucardo
from bench.peers.londiste import Londiste
from bench.peers.native import Native
from bench.peers.pglogical import Pglogical
from bench.peers.pipe import Pipe
from bench.peers.slony import Slony

KINDS: Mapping[str, Callable[[Field], Any]] = {
    "native": Native,
    "vedur": Vedur,
    "londiste": Londiste,
    "pglogical": Pglogical,
    "slony": Slony,
    "bucardo5": Bucardo,
    "pipe": Pipe,
    "pipe_binary": lambda ground: Pipe(ground, "pipe_binary", "(format binary)"),
}
#: All that replicate; the part says if one cannot do its work.
REPLICATING = "native,vedur,londiste,pglogical,slony,bucardo5"
COPYING = "native,vedur,londiste,pglogical,slony,pipe"


def chosen(ground: Field, names: str) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers of a run, and why others do not take part."""
    peers: list[Peer] = []
    absent: dict[str, str] = {}
    for name in names.split(","):
        if name not in KINDS:
            absent[name] = "not known"
            continue
        peer = KINDS[name](ground)
        why = peer.missing()
        if why:
            absent[name] = why
        else:
            peers.append(peer)
    return peers, absent


def settings(peers: list[Peer]) -> dict[str, str]:
    """Return the server settings that these peers need; they apply to all."""
    found: dict[str, str] = {}
    for peer in peers:
        found |= getattr(peer, "needs", {})
    return found


__all__ = ["COPYING", "KINDS", "REPLICATING", "Peer", "chosen", "settings"]
