"""Numbers as people read them. Pure."""

from __future__ import annotations

#: Shown where nobody knows.
UNKNOWN = "–"

_STEPS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: float | None) -> str:
    """Format a number: `1,234,567`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Format events a second; one decimal for small numbers."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Format a time: `0 s`, `340 ms`, `4.2 s`, `12 s`, `3m 20s`, `5m`, `2h 5m`, `3d 4h`."""
    if value is None:
        return UNKNOWN
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.0005 else "<1 ms"
    if value < 10 and value != int(value):
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    whole = int(value)
    at = next(index for index, (size, _) in enumerate(_STEPS) if whole >= size)
    (size, letter), (below, small) = _STEPS[at], _STEPS[at + 1]
    rest = whole % size // below
    return f"{whole // size}{letter} {rest}{small}" if rest else f"{whole // size}{letter}"


def size(value: float | None) -> str:
    """Format a number of bytes: `0 B`, `8.2 kB`, `1.4 GB`."""
    if value is None:
        return UNKNOWN
    step = 0
    while value >= 1000 and step < len(_SIZES) - 1:
        value /= 1000
        step += 1
    return f"{value:.0f} {_SIZES[step]}" if step == 0 else f"{value:.1f} {_SIZES[step]}"


def percent(done: float, total: float | None) -> int | None:
    """Return the percentage that is done, None if the total is unknown; 100 only at the end."""
    if not total or total <= 0:
        return None
    return 100 if done >= total else min(99, int(done * 100 / total))


def server(version: int | None) -> str:
    """Format a version: `PostgreSQL 16.3` from `160003`."""
    if version is None:
        return UNKNOWN
    return f"PostgreSQL {version // 10000}.{version % 10000}"


def cut(text: str, most: int) -> str:
    """Shorten a text; its end is replaced by an ellipsis where it is too long."""
    return text if len(text) <= most else text[: most - 1] + "…"
