"""Fixtures of the integration tests alone."""

from __future__ import annotations

from tests.labs.chain import make_chain
from tests.labs.combined import make_combined
from tests.labs.first_copy import quick_lab
from tests.labs.in_process import without_spark
from tests.labs.leaf import make_leaf
from tests.labs.mixed import make_mixed
from tests.labs.scene import mixed_scene, scene
from tests.labs.sets import make_places, make_sets

__all__ = [
    "make_chain",
    "make_combined",
    "make_leaf",
    "make_mixed",
    "make_places",
    "make_sets",
    "mixed_scene",
    "quick_lab",
    "scene",
    "without_spark",
]
