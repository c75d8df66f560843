"""Differences turned into changes of the target: staged by tasks, applied by one transaction."""

from __future__ import annotations

from vedur.pipeline.repair.apply import Repaired, RepairMoment, RepairTable, apply
from vedur.pipeline.repair.stage import Stage, open_stage, stage_keys, stage_rows

__all__ = [
    "RepairMoment",
    "RepairTable",
    "Repaired",
    "Stage",
    "apply",
    "open_stage",
    "stage_keys",
    "stage_rows",
]
