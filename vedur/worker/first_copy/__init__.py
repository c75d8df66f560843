"""First copies of tables, run beside the worker's loop."""

from __future__ import annotations
