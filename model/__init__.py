"""The checked model of ticks, batches, rotation and takeover: `python -m model`, `make model`."""

from __future__ import annotations
