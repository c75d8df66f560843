"""The processes that run for long: worker, ticker and status page, from start to end."""

from __future__ import annotations
