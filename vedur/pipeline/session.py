"""The worker's Spark session: one for the life of the process, warm before the first batch.

Java's own talk goes where `log_path` says, never to the terminal. Connect strings never become
Spark settings: they travel in the closure of a task only.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vedur.errors import ConfigError
from vedur.pipeline.stage.job import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

#: What a replication worker wants; every key can be overridden in the ini.
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "8",
    # Replay takes the next free slot even while a first copy has many tasks waiting.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Idle executors' Python keeps its connections; a new one costs about 0.2 s per batch.
    "spark.python.worker.reuse": "true",
}
_LOCAL_ONLY = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def start_session(name: str, settings: Mapping[str, str], log_path: str = "") -> SparkSession:
    """Start (or connect to) Spark and run a first job, which costs seconds."""
    from pyspark.sql import SparkSession as SparkSession

    # At DEBUG it would write its secret and every closure, connect strings included, into logs.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    wanted = _merged(settings)
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _terminal_kept_clean(log_path):
        session = builder.getOrCreate()
        warm_up(session)
    return session


def _merged(settings: Mapping[str, str]) -> dict[str, str]:
    for key, value in settings.items():
        if "password=" in value or "password =" in value:
            raise ConfigError(f'"{key}" holds a password: Spark would show it to its users')
    if "spark.remote" in settings:
        return dict(settings)
    merged = {**DEFAULTS, **settings}
    if merged["spark.master"].startswith("local["):
        merged = {**_LOCAL_ONLY, **merged}
    return merged


@contextmanager
def _terminal_kept_clean(log_path: str) -> Iterator[None]:
    """Java inherits stdout and stderr at its start: they point to the log meanwhile."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    log = os.open(log_path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for fd in (log, *saved):
            os.close(fd)


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once."""
    value = session.conf.get("spark.default.parallelism", None)
    if value and value.isdigit():
        return int(value)
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context; its clusters say so in their settings
        return 2


def stop_session(session: SparkSession) -> None:
    """End the session and the Java process that we started for it."""
    from pyspark import SparkContext

    session.stop()
    gateway = getattr(SparkContext, "_gateway", None)
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        gateway.shutdown()
        if process is not None:
            process.stdin.close()
            process.wait(timeout=10)
        SparkContext._gateway = None
        SparkContext._jvm = None
