"""The command `doctor`: everything that replication needs, checked without changing anything."""

from __future__ import annotations
