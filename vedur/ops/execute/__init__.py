"""The command `execute`, and its plan."""

from __future__ import annotations
