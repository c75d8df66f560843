"""Fixtures of the integration tests alone."""

from __future__ import annotations

from tests.integration.copy_lab import quick_lab
from tests.oracle.leaf import make_leaf
from tests.oracle.quick import without_spark

__all__ = ["make_leaf", "quick_lab", "without_spark"]
