"""The worker's Spark session: one for the life of the process, warm before the first batch.

What Java and Spark say goes where `log_path` says, never into our own log, and to the terminal only
where the operator wants to see everything. Connect strings never become Spark settings: they
travel in the closure of a task only.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vedur.errors import ConfigError, StateError, VedurError, first_line
from vedur.log import send_to_file
from vedur.pipeline.spark.early import MODULE, EarlyProcess
from vedur.pipeline.spark.java_start import java_settings
from vedur.pipeline.spark.scratch import HERE, Scratch
from vedur.pipeline.spark.spark_pool import is_remote
from vedur.pipeline.spark.tasks import keep_slot, warm_up
from vedur.threads import Thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

log = logging.getLogger(__name__)

#: What a replication worker wants; every key can be overridden in the ini.
DEFAULTS = {
    "spark.master": "local[*]",
    # A task whose process dies is run again; elsewhere Spark does that by itself.
    "spark.task.maxFailures": "4",
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
#: Ways to have tasks run by another Python than ours, which may lack Vedur.
_OTHER_PYTHON = ("spark.pyspark.python", "spark.pyspark.driver.python")
#: What says which module that process is.
_DAEMON = "spark.python.daemon.module"
#: What the operator sets for the environment of tasks.
_TASK_ENVIRONMENT = "spark.executorEnv."
#: Seconds that the early process may take to end once Java has gone.
_EARLY_PATIENCE = 5.0
#: What this process needs as soon as there is a session; Spark's client asks for pandas.
_LATER = (
    "pandas",
    "pyarrow",
    "pyspark.testing",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.map_ops",
    "vedur.pipeline.copy",
    "vedur.pipeline.compare",
    "vedur.pipeline.replay.stage",
)
_early: EarlyProcess | None = None
_scratch: Scratch | None = None
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")


def start_session(
    name: str,
    settings: Mapping[str, str],
    log_path: str = "",
    *,
    most_tasks: int | None = None,
    more_tasks: int = 0,
    resident: bool = False,
    dump: str = "",
    echo: bool = False,
) -> SparkSession:
    """Start (or connect to) Spark and run a first job, which costs seconds.

    Its own lines go to the file `log_path`; without one to stderr (`echo`), or nowhere.

    A master of this machine's cores (`local[*]`) runs `more_tasks` than it has cores, and at most
    `most_tasks` at once: each has a connection to either database. `resident`: a slot is kept for a
    task that stays, one more than there would be; where the operator has said how many there are,
    one of these. With `dump`, Java writes an archive of its classes there when it ends.
    """
    from pyspark.sql import SparkSession as SparkSession

    # At DEBUG it would write its secret and every closure, connect strings included, into logs.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # It tells the root logger that Java has gone: the one who asked for something hears it anyway.
    logging.getLogger().addFilter(_not_py4j)
    if resident and (os.cpu_count() or 1) > 1:
        more_tasks += 1
    wanted = _merged(settings, most_tasks, more_tasks)
    wanted |= java_settings(wanted, dump)
    if "spark.remote" in wanted:
        _require_connect()
    else:
        wanted |= _files(wanted)
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if wanted.get("spark.master", "").startswith("local"):
        # Where Spark's pages listen, if the ini turns them on: no setting of Spark says that.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_path = _writable(log_path)
    if not (echo and not log_path):
        send_to_file(("py4j", "pyspark"), log_path)
    with _terminal_kept_clean(log_path, echo), _beside_java(wanted):
        session = _create(builder, log_path)
        kept = resident and keep_slot(session)
        warm_up(session)
    if resident and not kept:
        log.info("Spark has no slot to spare for a resident task: all batches are ordinary jobs")
    _keep_quiet()
    return session


def _writable(log_path: str) -> str:
    """Return the path if the file can be written; another user's is no reason to do without
    Spark."""
    if not log_path:
        return ""
    try:
        # not for everybody: nothing masks what Java writes
        os.close(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        log.warning('Spark\'s own lines are lost, cannot write "%s": %s', log_path, error.strerror)
        return ""
    return log_path


@contextmanager
def _beside_java(wanted: Mapping[str, str]) -> Iterator[None]:
    """Have done meanwhile what would wait for Java, or Java for it: the process that tasks are
    forked from begins, and what this process needs of libraries is loaded."""
    global _early
    if "spark.remote" in wanted:
        yield
        return
    if _may_begin_early(wanted) and _scratch is not None and _early is None:
        _early = EarlyProcess(_scratch.path)
        _early.start()
    loading = Thread(target=_load_ahead, name="load-ahead", daemon=True)
    loading.start()
    try:
        yield
    except BaseException:
        _end_early(0)
        raise
    finally:
        if _early is not None:
            _early.leave()
        loading.join()


def _may_begin_early(wanted: Mapping[str, str]) -> bool:
    """Would the process that Spark begins later be the same?"""
    if not wanted["spark.master"].startswith("local") or wanted.get(_DAEMON) != MODULE:
        return False
    # Libraries read some of their environment (time zone, allocator, threads) once, as they load.
    return not any(key.startswith(_TASK_ENVIRONMENT) for key in wanted)


def _load_ahead() -> None:
    """Load what Spark's client, and the work after it, will import one after the other."""
    for name in _LATER:
        with contextlib.suppress(Exception):  # whoever needs it says what is wrong
            importlib.import_module(name)


def _end_early(patience: float) -> None:
    global _early
    early, _early = _early, None
    if early is not None:
        early.end(patience)


def _create(builder: Any, log_path: str) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
    except VedurError:
        raise
    except Exception as error:
        where = f': see "{log_path}"' if log_path else ": run it with -v to see what Java says"
        raise StateError(f"Spark cannot be started ({first_line(error)}){where}") from error
    return session


def _files(wanted: Mapping[str, str]) -> dict[str, str]:
    """Return where this session's files go; executors elsewhere have places of their own."""
    global _scratch
    if _scratch is None:
        _scratch = Scratch()
    found = _scratch.settings(wanted)
    if not wanted["spark.master"].startswith("local"):
        for key in HERE:
            found.pop(key, None)
    return found


def _require_connect() -> None:
    for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ConfigError(
                f'spark.remote needs the client of Spark Connect, "{name}" is missing: '
                "run \"pip install 'vedur[connect]'\""
            )


def _not_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _keep_quiet() -> None:
    """Keep the server for counters of tasks quiet, which prints a traceback to the terminal when
    Java dies."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _merged(
    settings: Mapping[str, str], most_tasks: int | None = None, more_tasks: int = 0
) -> dict[str, str]:
    for key, value in settings.items():
        if "password=" in value or "password =" in value:
            raise ConfigError(f'"{key}" holds a password: Spark would show it to its users')
    if "spark.remote" in settings:
        return dict(settings)
    merged = {**DEFAULTS, **settings}
    if merged["spark.master"].startswith("local"):
        merged = {**_LOCAL_ONLY, **merged}
    local = _LOCAL.fullmatch(merged["spark.master"])
    if local:
        tasks = local[1] or "1"
        cores = os.cpu_count() or 1
        count = min(cores + more_tasks, most_tasks or cores + more_tasks)
        if tasks == "*" and count != cores:
            tasks = str(count)
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if python == sys.executable and not any(key in merged for key in _OTHER_PYTHON):
            merged.setdefault(_DAEMON, MODULE)
        # In local mode this is the only place where Spark looks for the number of attempts.
        merged["spark.master"] = f"local[{tasks},{merged['spark.task.maxFailures']}]"
    return merged


@contextmanager
def _terminal_kept_clean(log_path: str, echo: bool = False) -> Iterator[None]:
    """Point stdout and stderr to Java's log meanwhile: Java inherits them at its start."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    if echo and not log_path:
        sink = os.dup(2)  # stdout stays the data's
    else:
        # appended to, so that it can be emptied meanwhile
        sink = os.open(log_path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for fd in (sink, *saved):
            os.close(fd)


def is_alive(session: SparkSession, thorough: bool = False) -> bool:
    """Can it still run jobs? Cheap; `thorough` asks Spark itself, which costs a round trip."""
    process = _java()
    if process is not None and process.poll() is not None:
        return False
    if not thorough:
        return True
    try:
        if is_remote(session):
            return bool(session.version)
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _java() -> subprocess.Popen[bytes] | None:
    """Return the Java process that this process started, if it did."""
    from pyspark import SparkContext

    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def stop_session(session: SparkSession, patience: float = 10) -> None:
    """End the session, also a dead one, and the Java process that we started for it.

    Java has `patience` seconds to end in order.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as SparkSession

    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore", RuntimeWarning)  # "Unable to cleanly shutdown Spark JVM"
        session.stop()
    process, gateway = _java(), SparkContext._gateway
    with contextlib.suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
    if process is not None:
        _end(process, patience)
    # What a dead Java keeps `stop` from forgetting; a new session would be built on it.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    _end_early(_EARLY_PATIENCE)
    global _scratch
    scratch, _scratch = _scratch, None
    if scratch is not None:
        scratch.remove()


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Close Java's standard input, and wait: Java ends then; if it is stuck, without being
    asked."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
