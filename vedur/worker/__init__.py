"""The long-running process of a node: its loop, the order of one batch, states of tables."""

from __future__ import annotations
