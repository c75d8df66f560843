"""How the Java below a session starts quickly: one compiler, and classes from an archive.

Rows never pass through Java here, so its optimising compiler would only cost: with the quick one
alone a session is ready after 8.9 s instead of 10.8 s, for 8.8 s of CPU instead of 15.5 s. Most
of what is left is loading classes. HotSpot can write the classes of one run into an archive and
map it in the next: 4.9 s, and 4.9 s of CPU (2 cores, Java 17, Spark 4;
`python -m vedur.pipeline.spark.java_start` prints both). `vedur prepare` makes the archive, once
for each pair of Java and Spark; a Java that it does not fit starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

#: For every Java that we start; what the ini says comes after it and wins. Left to itself Java
#: begins with a heap of 1/64 of the memory (384 MB here) and fills it before it collects: 65 MB
#: of that were alive after 600 jobs.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m"
OPTIONS = "spark.driver.extraJavaOptions"
#: Archives that are kept, at about 150 MB each: environments may stand side by side.
_KEPT = 4
#: Not one word about an archive that does not fit, nor about the one that is being written.
_SILENT = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def java_settings(given: Mapping[str, str], dump: str = "") -> dict[str, str]:
    """Return settings for the Java that `given` would start; with `dump`, one that writes that
    archive."""
    if "spark.remote" in given:
        return {}
    words = [QUICK]
    known = archive()
    if dump:
        words += [_SILENT, f"-XX:ArchiveClassesAtExit={dump}"]
    elif known is not None and usable(known):
        words += [_SILENT, f"-XX:SharedArchiveFile={known}"]
    words.append(given.get(OPTIONS, ""))
    return {OPTIONS: " ".join(words).strip()}


def archive() -> Path | None:
    """Return where the archive for the Java and the Spark at hand belongs; None without either."""
    java, jars = _java(), _jars()
    if java is None or jars is None:
        return None
    marks = []
    for place in (java, java.parents[1] / "lib" / "modules", jars):
        try:
            found = place.stat()
        except OSError:
            return None
        marks.append(f"{place} {found.st_size} {found.st_mtime_ns}")
    digest = hashlib.sha256("\n".join([QUICK, *marks]).encode()).hexdigest()[:16]
    return _cache() / f"java-{digest}.jsa"


def usable(path: Path) -> bool:
    """Is it there, and nobody else's? Its classes run in our Java."""
    try:
        found, home = path.stat(), path.parent.stat()
    except OSError:
        return False
    mine = found.st_uid == home.st_uid == os.geteuid()
    return mine and not (found.st_mode | home.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vedur"


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found else None


def _jars() -> Path | None:
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home) / "jars"
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def make_archive() -> Path | None:
    """Write the archive of the Java and the Spark at hand; None if that Java cannot."""
    from vedur.pipeline.spark.session import start_session, stop_session

    target = archive()
    if target is None:
        return None
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as place:
        made = Path(place) / target.name
        session = start_session("vedur prepare", {}, dump=str(made))
        stop_session(session, patience=300)
        if not made.exists():
            return None
        made.chmod(0o600)
        made.replace(target)
    _remove_old(target)
    return target


def _remove_old(current: Path) -> None:
    """Remove archives of Javas and Sparks that were here before, but for the newest few."""
    with contextlib.suppress(OSError):
        known = sorted(current.parent.glob("java-*.jsa"), key=lambda p: p.stat().st_mtime)
        for path in known[:-_KEPT]:
            path.unlink()


if __name__ == "__main__":
    import resource
    import time

    from vedur.pipeline.spark.session import start_session, stop_session

    began = time.monotonic()
    stop_session(start_session("vedur start", {}))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU")
