"""Which objects a command means: names and globs against what is there; pure.

Names come as the contract writes them (`Weird Schema.Order`) or as SQL does
(`"Weird Schema"."Order"`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from vedur.errors import UsageError
from vedur.names import fqname, readings, sql_parts

log = logging.getLogger(__name__)


def is_glob(name: str) -> bool:
    """True for a pattern with `*` or `?` outside of double quotes."""
    parts = sql_parts(name) or (name,)
    return any("*" in part or "?" in part for part in parts if part[0:1] != '"')


def _pattern(text: str) -> str:
    """A glob in the contract's form; what stands in double quotes is meant literally."""
    parts = sql_parts(text)
    if parts is None:
        return fqname(text)
    return fqname(".".join(_literal(p) if p[0] == '"' else p for p in parts))


def _literal(quoted: str) -> str:
    bare = quoted[1:-1].replace('""', '"')
    return "".join(f"[{c}]" if c in "*?[" else c for c in bare)


def meant(text: str, known: Collection[str]) -> str:
    """The one name that an operator means; the likeliest where none is known.

    Raises `UsageError` where both readings are the name of something.
    """
    found = [name for name in dict.fromkeys(readings(text)) if name in known]
    if len(found) > 1:
        raise UsageError(
            f"{text} can mean {' or '.join(found)}: write the one that is meant with SQL's quotes, "
            'doubling those in the name ("a""b")'
        )
    return found[0] if found else readings(text)[0]


def choose(
    asked: Sequence[str],
    available: Iterable[str],
    *,
    everything: bool = False,
    done: Collection[str] = (),
    skip_missing: bool = False,
    why: Callable[[str], str | None] = lambda name: None,
) -> list[str]:
    """The contract names that are meant, in the order asked for, each once.

    `available` is what could be meant; `done` are names that need nothing more, which is said
    for each one asked for by name; `why` gives the reason why a name is not available, if there
    is more to say. A bare glob means schema public.
    """
    if everything and asked:
        raise UsageError("--all takes no names: leave out one of the two")
    names = list(dict.fromkeys(available))
    if everything:
        return names
    known = {*names, *done}
    found: dict[str, None] = {}
    lost = False
    for text in asked:
        if is_glob(text):
            pattern = _pattern(text)
            found |= dict.fromkeys(name for name in names if fnmatchcase(name, pattern))
            continue
        name = meant(text, known)
        if name in names:
            found[name] = None
        elif name in done:
            log.info("%s already processed", name)
        else:
            lost = lost or not skip_missing
            reason = why(name)
            log.warning("%s not available%s", name, f": {reason}" if reason else "")
    if lost:
        raise UsageError("Cannot proceed")
    return list(found)
