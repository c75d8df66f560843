"""resurrect: a node of a reign that is over comes back; lost-events: what only it had."""

from __future__ import annotations
