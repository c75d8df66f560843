"""The laboratories by name, and which faults are drawn in which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tests.torture.merging.steps
import tests.torture.moving_root
import tests.torture.nodes
import tests.torture.quarantine
import tests.torture.rejoin
import tests.torture.undoing  # noqa: F401  (the same)
from tests.torture.branch import CASCADE
from tests.torture.chain import Chain
from tests.torture.faults import FAULTS
from tests.torture.laboratory import Laboratory
from tests.torture.merging.faults import MERGE
from tests.torture.merging.lab import Merge

#: Each with what is drawn in it: names, weights and functions.
LABS: dict[str, dict[str, tuple[float, Callable[[Any], None]]]] = {
    "pair": FAULTS,
    "cascade": CASCADE,
    "merge": MERGE,
}


def faults_of(lab: str, plain: bool = False) -> dict[str, tuple[float, Callable[[Any], None]]]:
    """Names, weights and functions; `plain` workers have no Java that could die, nor a task that
    stays."""
    return {
        n: f
        for n, f in LABS[lab].items()
        if not (plain and (n.startswith("Spark's ") or " at resident." in n))
    }


def make_laboratory(lab: str, plain: bool, *, shared_spark: bool) -> Laboratory:
    """One that has yet to be started."""
    if lab == "merge":
        return Merge(plain)
    return Chain(lab, plain, shared_spark)
