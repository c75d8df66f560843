"""Which ini files one process can serve: what must be the same in them, and what must not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from vedur.config import LondisteSettings
from vedur.db.conninfo import parse
from vedur.errors import ConfigError

#: One Java, and one number of connections that its tasks may hold to a database.
_SAME: dict[str, Callable[[LondisteSettings], object]] = {
    "[spark]": lambda s: s.spark,
    '"max_connections_per_node"': lambda s: s.max_connections_per_node,
}
#: What two workers would write into, or be mixed up by; empty where an ini has none.
_OWN: dict[str, Callable[[LondisteSettings], object]] = {
    "node": lambda s: _node(s),
    '"job_name"': lambda s: s.job_name,
    '"pidfile"': lambda s: _path(s.pidfile),
    '"logfile"': lambda s: _path(s.logfile),
}


def require_together(several: Sequence[LondisteSettings]) -> None:
    """Raise `ConfigError` for the first reason why one process cannot serve these ini files."""
    first = several[0]
    for settings in several:
        if settings.use_skylog:
            raise ConfigError(
                f'config file "{settings.config_file}": "use_skylog" directs the log of a whole '
                'process, and each queue here has its own: set "logfile" and leave it out'
            )
        for what, value in _SAME.items():
            if value(settings) != value(first):
                raise ConfigError(
                    f'config files "{first.config_file}" and "{settings.config_file}" differ in '
                    f"{what}: queues in one process share Spark and its connections, give both "
                    "the same, or start them apart"
                )
    for what, value in _OWN.items():
        _require_apart(several, what, value)


def _require_apart(
    several: Sequence[LondisteSettings], what: str, value: Callable[[LondisteSettings], object]
) -> None:
    seen: dict[object, str] = {}
    for settings in several:
        found = value(settings)
        if found and found in seen:
            raise ConfigError(
                f'config files "{seen[found]}" and "{settings.config_file}" have the same {what}: '
                "each queue in a process needs its own"
            )
        seen[found] = settings.config_file


def _node(settings: LondisteSettings) -> tuple[object, ...]:
    """Return what tells a node, as far as an ini does."""
    known = parse(settings.db)
    where = [known.get(key, "") for key in ("host", "hostaddr", "port", "service", "dbname")]
    return (settings.queue_name, *where)


def _path(path: str) -> str:
    return os.path.realpath(path) if path else ""
