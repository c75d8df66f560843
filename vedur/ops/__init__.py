"""Operator actions that join several packages, one module each."""

from __future__ import annotations
