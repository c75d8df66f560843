"""Fixtures of the integration tests alone."""

from __future__ import annotations

from tests.oracle.leaf import make_leaf

__all__ = ["make_leaf"]
