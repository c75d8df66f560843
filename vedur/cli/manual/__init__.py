"""Pages of the manual that are made from the code: `python -m vedur.cli.manual`."""

from __future__ import annotations
