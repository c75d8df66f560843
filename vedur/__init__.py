"""Replicates tables between PostgreSQL databases; see README.md."""

from __future__ import annotations

__version__ = "0.1.0"
