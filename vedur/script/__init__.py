"""Scripts of `execute`: their conditions, and their statements in the names of one node."""

from __future__ import annotations
