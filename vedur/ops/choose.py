"""Which objects a command means: names and globs against what is there; pure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from vedur.errors import UsageError
from vedur.names import fqname

log = logging.getLogger(__name__)


def is_glob(name: str) -> bool:
    """True for a pattern with `*` or `?`."""
    return "*" in name or "?" in name


def choose(
    asked: Sequence[str],
    available: Iterable[str],
    *,
    everything: bool = False,
    done: Collection[str] = (),
    skip_missing: bool = False,
) -> list[str]:
    """The contract names that are meant, in the order asked for, each once.

    `available` is what could be meant; `done` are names that need nothing more, which is said
    for each one asked for by name. A bare glob means schema public.
    """
    if everything and asked:
        raise UsageError("--all takes no names: leave out one of the two")
    names = list(dict.fromkeys(available))
    if everything:
        return names
    found: dict[str, None] = {}
    lost = False
    for text in asked:
        pattern = fqname(text)
        if is_glob(text):
            found |= dict.fromkeys(name for name in names if fnmatchcase(name, pattern))
        elif pattern in names:
            found[pattern] = None
        elif pattern in done:
            log.info("%s already processed", pattern)
        else:
            lost = lost or not skip_missing
            log.warning("%s not available", pattern)
    if lost:
        raise UsageError("Cannot proceed")
    return list(found)
