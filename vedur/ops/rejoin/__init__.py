"""The command `rejoin`: brings back a node whose position does not fit any more."""

from __future__ import annotations
