"""The quarantine at work: of one batch, and of one consumer over many batches."""

from __future__ import annotations
