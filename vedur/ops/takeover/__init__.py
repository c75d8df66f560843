"""The command `takeover`: another node becomes root, or takes the place of a branch."""

from __future__ import annotations
