"""Replay on Spark: read, decode, collapse and stage in tasks, merge in one transaction."""

from __future__ import annotations
