"""Which faults are drawn in which laboratory."""

from __future__ import annotations

import tests.torture.moving_root
import tests.torture.nodes
import tests.torture.quarantine
import tests.torture.rejoin  # noqa: F401  (the same)
from tests.torture.branch import CASCADE
from tests.torture.faults import FAULTS, Run


def faults_of(lab: str, plain: bool = False) -> dict[str, tuple[float, Run]]:
    """Names, weights and functions; `plain` workers have no Java that could die."""
    found = FAULTS if lab == "pair" else CASCADE
    return {n: f for n, f in found.items() if not (plain and n.startswith("Spark's "))}
