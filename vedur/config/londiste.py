"""Parameters of the replication commands: sections `[londiste3]`, `[londiste]` and `[vedur]`.

The first five groups are the sample that Londiste 3 prints, key by key; later groups hold what
newer versions added and what only Vedur has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vedur.config import kinds
from vedur.config.parameter import declare
from vedur.config.reader import read_values

SECTIONS = ("londiste3", "londiste", "vedur")

_MAIN = "Parameters for Londiste"
_CASCADE = "Parameters for pgq.CascadedWorker"
_CONSUMER = "Parameters for pgq.Consumer"
_DATABASE = "Parameters for skytools.DBScript"
# The sample of Londiste 3.0 prints this heading twice; a trailing blank keeps the groups apart.
_SCRIPT = _DATABASE + " "
_CREATE = "Parameters for initial node creation: create-root/branch/leaf"
_NEWER = "Parameters of later Londiste versions"
_VEDUR = "Parameters of Vedur"

_COMPARE_SQL = "select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only _TABLE_ t"


@dataclass(frozen=True, kw_only=True)
class LondisteSettings:
    """What an ini says about one node and its worker."""

    GROUP_GAP: ClassVar[int] = 1
    SAMPLE_TAIL: ClassVar[tuple[str, ...]] = (
        "[spark]\n\n# where tasks run; any spark.* key may be given\n#spark.master = local[*]\n",
    )

    db: str = declare(
        kinds.CONNSTR,
        "",
        "target database",
        _MAIN,
        sample="dbname=somedb host=127.0.0.1",
        active=True,
        required=True,
    )
    parallel_copies: int = declare(
        kinds.integer(1), 1, "how many tables can be copied in parallel", _MAIN
    )
    local_only: bool = declare(
        kinds.BOOLEAN, True, "accept only events for locally present tables", _MAIN
    )
    lock_timeout: float = declare(
        kinds.PERIOD,
        10.0,
        "## compare/repair\nmax amount of time table can be locked",
        _MAIN,
    )
    compare_sql: str = declare(
        kinds.TEXT, _COMPARE_SQL, "compare: sql to use", _MAIN, glued=True, template=True
    )
    compare_fmt: str = declare(
        kinds.TEXT, "%(cnt)d rows, checksum=%(chksum)s", "", _MAIN, glued=True, template=True
    )

    global_wm_publish_period: float = declare(
        kinds.PERIOD,
        300.0,
        "how often the root node should push wm downstream (seconds)",
        _CASCADE,
    )
    local_wm_publish_period: float = declare(
        kinds.PERIOD,
        300.0,
        "how often the nodes should report their wm upstream (seconds)",
        _CASCADE,
    )

    queue_name: str = declare(
        kinds.TEXT,
        "",
        "queue name to read from",
        _CONSUMER,
        active=True,
        required=True,
        aliases=("pgq_queue_name",),
    )
    consumer_name: str = declare(
        kinds.TEXT,
        "",
        "override consumer name",
        _CONSUMER,
        sample="%(job_name)s",
        aliases=("pgq_consumer_id",),
    )
    pgq_lazy_fetch: int = declare(
        kinds.integer(0), 300, "whether to use cursor to fetch events (0 disables)", _CONSUMER
    )
    pgq_autocommit: bool = declare(
        kinds.BOOLEAN,
        False,
        "whether to read from source size in autocommmit mode\n"
        "not compatible with pgq_lazy_fetch\n"
        "the actual user script on top of pgq.Consumer must also support it",
        _CONSUMER,
        sample="0",
    )
    pgq_batch_collect_events: int = declare(
        kinds.integer(0),
        0,
        "whether to wait for specified number of events, before\nassigning a batch (0 disables)",
        _CONSUMER,
    )
    pgq_batch_collect_interval: str | None = declare(
        kinds.TEXT,
        None,
        "whether to wait specified amount of time,\nbefore assigning a batch (postgres interval)",
        _CONSUMER,
    )
    pgq_keep_lag: str | None = declare(
        kinds.TEXT, None, "whether to stay behind queue top (postgres interval)", _CONSUMER
    )

    connection_lifetime: float = declare(
        kinds.PERIOD,
        1200.0,
        "default lifetime for database connections (in seconds)",
        _DATABASE,
    )

    loop_delay: float = declare(
        kinds.ANY_SECONDS,
        1.0,
        "how many seconds to sleep between work loops\n"
        "if missing or 0, then instead sleeping, the script will exit",
        _SCRIPT,
        sample="1.0",
        active=True,
    )
    logfile: str = declare(
        kinds.PATH,
        "",
        "where to log",
        _SCRIPT,
        sample="~/log/%(job_name)s.log",
        active=True,
    )
    pidfile: str = declare(
        kinds.PATH,
        "",
        "where to write pidfile",
        _SCRIPT,
        sample="~/pid/%(job_name)s.pid",
        active=True,
    )
    job_name: str = declare(
        kinds.TEXT,
        "",
        "per-process name to use in logging",
        _SCRIPT,
        sample="%(config_name)s",
    )
    use_skylog: int = declare(
        kinds.integer(0),
        0,
        "whether centralized logging should be used\n"
        "search-path [ ./skylog.ini, ~/.skylog.ini, /etc/skylog.ini ]\n"
        "  0 - disabled\n"
        "  1 - enabled, unless non-daemon on console (os.isatty())\n"
        "  2 - always enabled",
        _SCRIPT,
    )
    exception_sleep: float = declare(
        kinds.PERIOD, 20.0, "how many seconds to sleep after catching a exception", _SCRIPT
    )

    node_name: str = declare(kinds.TEXT, "", "name of the local node", _CREATE)
    public_node_location: str = declare(
        kinds.CONNSTR, "", "connect string that other nodes use to reach this one", _CREATE
    )
    initial_provider_location: str = declare(
        kinds.CONNSTR, "", "connect string of the node to subscribe to", _CREATE
    )
    register_only_tables: tuple[str, ...] = declare(
        kinds.NAMES, (), "glob patterns of the set's tables that this node records", _CREATE
    )
    register_only_seqs: tuple[str, ...] = declare(kinds.NAMES, (), "", _CREATE, glued=True)
    register_skip_tables: tuple[str, ...] = declare(
        kinds.NAMES, (), "glob patterns of the set's tables that this node leaves out", _CREATE
    )
    register_skip_seqs: tuple[str, ...] = declare(kinds.NAMES, (), "", _CREATE, glued=True)

    remote_extra_connstr: str = declare(
        kinds.CONNSTR,
        "",
        "added to the connect strings of other nodes, for example user= sslmode=",
        _NEWER,
    )
    remote_hosts: tuple[str, ...] = declare(
        kinds.NAMES,
        (),
        "hosts that locations of other nodes may name; empty: any",
        _NEWER,
        ours=True,
    )
    keepalive_stats: float = declare(
        kinds.PERIOD, 300.0, "seconds between statistics lines of an idle worker", _NEWER
    )
    skylog_locations: tuple[str, ...] = declare(
        kinds.NAMES,
        ("skylog.ini", "~/.skylog.ini", "/etc/skylog.ini"),
        "where to find skylog.ini",
        _NEWER,
    )
    log_size: int = declare(
        kinds.SIZE, 10 << 20, "bytes after which the log file is rotated", _NEWER, sample="10M"
    )
    log_count: int = declare(kinds.integer(0), 3, "how many rotated log files are kept", _NEWER)

    handler_modules: tuple[str, ...] = declare(
        kinds.NAMES, (), "Python modules with table handlers of your own", _NEWER
    )
    shard_hash_func: str = declare(
        kinds.TEXT, "partconf.get_hash_raw", "handler shard: the function that hashes", _NEWER
    )
    shard_info_sql: str = declare(
        kinds.TEXT,
        "select shard_nr, shard_mask, shard_count from partconf.conf",
        "handler shard: which shard this node is",
        _NEWER,
    )
    obfuscator_map: str = declare(
        kinds.PATH, "", "handler obfuscate: file with the rules, JSON or YAML", _NEWER
    )
    obfuscator_key: str = declare(
        kinds.TEXT, "", "handler obfuscate: secret key of its hashes, up to 32 bytes", _NEWER
    )

    log_format: str = declare(
        kinds.choice("text", "json"), "text", "text, or json: one object a line", _VEDUR, ours=True
    )
    event_format: str = declare(
        kinds.choice("json", "urlenc"),
        "json",
        "how triggers of newly added tables write events: json, or urlenc as Londiste does",
        _VEDUR,
        ours=True,
    )
    ticker_max_lag: float = declare(
        kinds.seconds(above=0),
        0.04,
        "create-root: how far ticks are apart while changes come (seconds; upstream: 3)",
        _VEDUR,
        ours=True,
    )
    max_batch_events: int = declare(
        kinds.integer(1),
        100_000,
        "a worker that is behind takes ticks together up to this many events",
        _VEDUR,
        ours=True,
    )
    on_error: str = declare(
        kinds.choice("stop", "quarantine-row", "quarantine-table"),
        "stop",
        "an event that this database refuses: stop, or put it and what follows of its row\n"
        "(of its table) into quarantine and go on; add-table and change-table set it per table",
        _VEDUR,
        ours=True,
    )
    missing_columns: str = declare(
        kinds.choice("warn", "stop"),
        "warn",
        "a column that exists on the provider only: warn and go on without it, or stop",
        _VEDUR,
        ours=True,
    )
    unknown_tables: str = declare(
        kinds.choice("pass-on", "stop"),
        "pass-on",
        "branch: an event of a table that is not registered here: pass it on, or stop",
        _VEDUR,
        ours=True,
    )
    max_connections_per_node: int = declare(
        kinds.integer(1),
        8,
        "connections that tasks may hold to one database at a time",
        _VEDUR,
        ours=True,
    )
    resident_task: str = declare(
        kinds.choice("auto", "off"),
        "auto",
        "while small batches follow each other: a Spark task that stays does them (auto), or each\n"
        "is a Spark job of its own (off); auto needs three slots of a local master",
        _VEDUR,
        ours=True,
    )
    web_port: int = declare(
        kinds.integer(0),
        0,
        "port of the status page that the worker serves (0: none; the command web: 8060)",
        _VEDUR,
        ours=True,
    )
    web_host: str = declare(
        kinds.TEXT,
        "127.0.0.1",
        "address that the status page listens on; it asks nobody for a password",
        _VEDUR,
        ours=True,
    )
    web_hosts: tuple[str, ...] = declare(
        kinds.NAMES,
        (),
        "further host names that the status page is reached by, through a proxy",
        _VEDUR,
        ours=True,
    )
    web_max_lag: float = declare(
        kinds.PERIOD,
        60.0,
        "seconds of lag above which the status page warns and /readyz says no",
        _VEDUR,
        ours=True,
    )

    takeover_hook: str = declare(
        kinds.TEXT,
        "",
        "command that takeover runs, with before, after or abort and the names of both nodes:\n"
        "to pause a connection pooler and let it go on at the new root",
        _VEDUR,
        ours=True,
    )

    config_file: str = ""
    warnings: tuple[str, ...] = ()
    spark: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.job_name:
            object.__setattr__(self, "job_name", Path(self.config_file).stem)
        if not self.consumer_name:
            object.__setattr__(self, "consumer_name", self.job_name)

    def pidfile_for(self, purpose: str) -> str:
        """Return the pidfile of a side process (`admin`, `copy.<table>`); '' without one."""
        return f"{self.pidfile}.{purpose}" if self.pidfile else ""


def load_londiste(
    path: str, overrides: Mapping[str, str] | None = None, *, service: str = "londiste3"
) -> LondisteSettings:
    """Read settings from an ini file; `overrides` are the `--set` values. Raises `ConfigError`."""
    return LondisteSettings(
        **read_values(
            LondisteSettings,
            path,
            sections=SECTIONS,
            overrides=overrides or {},
            service=service,
        )
    )
