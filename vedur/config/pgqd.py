"""Parameters of the ticker: section `[pgqd]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vedur.config import kinds
from vedur.config.parameter import declare
from vedur.config.reader import read_values

_OPTIONAL = "optional parameters"
_TIMEOUTS = "optional timeouts"
_NEWER = "parameters not in the sample of pgqd"
_VEDUR = "parameters of Vedur"


@dataclass(frozen=True, kw_only=True)
class PgqdSettings:
    """What an ini says about one ticker process."""

    GROUP_GAP: ClassVar[int] = 0
    SAMPLE_TAIL: ClassVar[tuple[str, ...]] = ()

    logfile: str = declare(kinds.PATH, "", "where to log", "", sample="~/log/pgqd.log", active=True)
    pidfile: str = declare(kinds.PATH, "", "pidfile", "", sample="~/pid/pgqd.pid", active=True)

    base_connstr: str = declare(
        kinds.CONNSTR, "", "libpq connect string without dbname=", _OPTIONAL
    )
    initial_database: str = declare(
        kinds.TEXT, "template1", "startup db to query other databases", _OPTIONAL
    )
    database_list: tuple[str, ...] = declare(
        kinds.WORDS, (), "limit ticker to specific databases", _OPTIONAL
    )
    syslog: bool = declare(kinds.BOOLEAN, True, "log into syslog", _OPTIONAL, sample="1")
    syslog_ident: str = declare(kinds.TEXT, "pgqd", "", _OPTIONAL, glued=True)

    check_period: float = declare(
        kinds.PERIOD, 60.0, "how often to check for new databases", _TIMEOUTS
    )
    retry_period: float = declare(kinds.PERIOD, 30.0, "how often to flush retry queue", _TIMEOUTS)
    maint_period: float = declare(kinds.PERIOD, 120.0, "how often to do maintentance", _TIMEOUTS)
    ticker_period: float = declare(kinds.PERIOD, 0.1, "how often to run ticker", _TIMEOUTS)

    syslog_facility: str = declare(
        kinds.TEXT, "daemon", "facility of the messages to syslog", _NEWER
    )
    stats_period: float = declare(
        kinds.PERIOD, 30.0, "how often to log the statistics line", _NEWER
    )
    connection_lifetime: float = declare(
        kinds.PERIOD, 3600.0, "seconds after which a connection is opened again", _NEWER
    )

    busy_period: float = declare(
        kinds.PERIOD,
        0.02,
        "how often to run ticker at most while there are events: then it runs as often as\n"
        "their queue may tick (ticker_max_lag), if that is more often than ticker_period",
        _VEDUR,
        ours=True,
    )
    log_size: int = declare(
        kinds.SIZE,
        10 << 20,
        "bytes after which the log file is rotated",
        _VEDUR,
        sample="10M",
        ours=True,
    )
    log_count: int = declare(
        kinds.integer(0), 3, "how many rotated log files are kept", _VEDUR, ours=True
    )
    log_format: str = declare(
        kinds.choice("text", "json"), "text", "text, or json: one object a line", _VEDUR, ours=True
    )

    config_file: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def job_name(self) -> str:
        """Return the base name of the ini file."""
        return Path(self.config_file).stem


def load_pgqd(path: str, overrides: Mapping[str, str] | None = None) -> PgqdSettings:
    """Read settings from an ini file. Raises `ConfigError`."""
    values = read_values(
        PgqdSettings, path, sections=("pgqd",), overrides=overrides or {}, service="pgqd"
    )
    del values["spark"]
    return PgqdSettings(**values)
