"""Fixtures of the status page: a set in real databases, and the page on a real port."""

from __future__ import annotations

from tests.labs.status_page import _patient, lab, open_page, upstream_pair

__all__ = ["_patient", "lab", "open_page", "upstream_pair"]
