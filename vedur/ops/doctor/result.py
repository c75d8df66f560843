"""What a check of the doctor found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How good."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line; `remedy` says what to do where it is not ok."""

    verdict: Verdict
    check: str
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(Verdict.OK, check, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Return the finding that replication works, but that this should be looked at."""
    return Finding(Verdict.WARN, check, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Return the finding that replication does not work, or loses something."""
    return Finding(Verdict.FAIL, check, found, remedy)


def names(found: list[str], most: int = 5) -> str:
    """Return some of the names, and how many more there are."""
    shown = ", ".join(found[:most])
    return shown if len(found) <= most else f"{shown} and {len(found) - most} more"
