"""Fixtures of doctor: the set of the status page."""

from __future__ import annotations

from tests.labs.status_page import _patient, lab

__all__ = ["_patient", "lab"]
