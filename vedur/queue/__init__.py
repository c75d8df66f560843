"""The typed face of pgq: queues, consumers, ticks, batches."""

from __future__ import annotations
