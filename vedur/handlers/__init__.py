"""Handlers of tables: which ones there are, and which of them this version can serve."""

from __future__ import annotations
