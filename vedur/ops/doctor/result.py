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
    """All is well."""
    return Finding(Verdict.OK, check, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Replication works, but look at this."""
    return Finding(Verdict.WARN, check, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Replication does not work, or loses something."""
    return Finding(Verdict.FAIL, check, found, remedy)


def names(found: list[str], most: int = 5) -> str:
    """Some names, and how many more."""
    shown = ", ".join(found[:most])
    return shown if len(found) <= most else f"{shown} and {len(found) - most} more"
