"""Commands about events that a node refuses: errors, skip, quarantine."""

from __future__ import annotations
