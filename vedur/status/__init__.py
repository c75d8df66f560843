"""One read-only snapshot of what an operator asks: who is there, how far, and in what health."""

from __future__ import annotations

from vedur.status.snapshot import NodeStatus, SetStatus, read_node, read_set

__all__ = ["NodeStatus", "SetStatus", "read_node", "read_set"]
