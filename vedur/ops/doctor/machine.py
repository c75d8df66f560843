"""Checks of the machine: the ini file, the worker's process, Java and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from vedur.config import LondisteSettings
from vedur.daemon import is_running
from vedur.log import holds_password
from vedur.ops.doctor.result import Finding, fail, ok, warn

#: What Spark 4 needs.
JAVA = 17
_TIMEOUT = 60.0


def check_ini(settings: LondisteSettings) -> Iterator[Finding]:
    """Yield findings about the ini itself and the places that it names."""
    path = Path(settings.config_file)
    found = False
    for warning in settings.warnings:
        found = True
        yield warn("ini", warning, "correct the ini")
    secrets = (settings.db, settings.public_node_location, settings.initial_provider_location)
    if path.exists() and path.stat().st_mode & 0o077 and any(map(holds_password, secrets)):
        found = True
        yield warn(
            "ini",
            f'"{path}" holds a password and others may read it',
            f"chmod 600 {path}, or keep the password in ~/.pgpass",
        )
    for key, name in (("logfile", settings.logfile), ("pidfile", settings.pidfile)):
        if name and not _writable(Path(name)):
            found = True
            yield fail("ini", f'{key} "{name}" cannot be written', "make its directory writable")
    if not found:
        yield ok("ini", str(path))


def _writable(path: Path) -> bool:
    return os.access(path if path.exists() else path.parent, os.W_OK)


def check_worker(settings: LondisteSettings) -> Iterator[Finding]:
    """Yield findings about the worker of this ini: does it run?"""
    if not settings.pidfile:
        yield ok("worker", "no pidfile in the ini: whether it runs is not known")
        return
    try:
        pid = int(Path(settings.pidfile).read_text().strip() or 0)
    except (OSError, ValueError):
        pid = 0
    if pid and is_running(pid):
        yield ok("worker", f"runs with pid {pid}")
    else:
        yield warn("worker", "does not run", "start it: worker, with -d in the background")


def check_spark(settings: LondisteSettings, *, needed: bool) -> Iterator[Finding]:
    """Yield findings about Java and Spark; a root needs them for compare and repair only."""
    missing = fail if needed else warn
    if "spark.remote" in settings.spark:
        yield ok("java", "not needed here: Spark runs elsewhere (spark.remote)")
    else:
        found, version = java_version()
        if version is None:
            yield missing(
                "java", found, f"install Java {JAVA} or newer (openjdk-{JAVA}-jre-headless)"
            )
        elif version < JAVA:
            yield missing("java", f"version {version} at {found} is too old", "set JAVA_HOME to 17")
        else:
            yield ok("java", f"version {version}, {found}")
    done = subprocess.run(
        [sys.executable, "-c", "import pyspark.sql; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode == 0:
        yield ok("spark", f"pyspark {done.stdout.strip().splitlines()[-1]}")
    else:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield missing("spark", f"pyspark cannot be loaded: {last}", "pip install vedur again")


def java_version() -> tuple[str, int | None]:
    """Run Java to learn its version; returns where it is and its major version, a reason and None
    where it cannot be run."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return "no java on PATH and no JAVA_HOME", None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be run: {error}", None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if found is None:
        return f"{program} does not tell its version", None
    # Java 8 called itself 1.8
    return program, int(found[2] if found[1] == "1" and found[2] else found[1])
