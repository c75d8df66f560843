"""`python -m vedur` is the command `vedur`."""

from __future__ import annotations

from vedur.cli.main import vedur

vedur()
