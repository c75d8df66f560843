"""The ticker, which is a program of its own: ticks, maintenance and retry of every queue."""

from __future__ import annotations
