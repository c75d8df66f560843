"""Spark itself: the session, the Java below it, the task processes and their connections."""

from __future__ import annotations
