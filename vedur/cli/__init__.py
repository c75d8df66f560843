"""Commands: parse, call, print."""

from __future__ import annotations
