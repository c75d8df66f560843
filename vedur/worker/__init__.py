"""The work of a node: the loop, the roles that say what a round is, batches, first copies."""

from __future__ import annotations
