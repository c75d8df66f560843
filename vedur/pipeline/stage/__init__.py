"""Read, decode, collapse and stage: the part of replay that runs in Spark tasks."""

from __future__ import annotations
