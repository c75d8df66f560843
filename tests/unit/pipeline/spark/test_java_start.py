"""Which options the Java below a session gets, and whose archive it may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vedur.pipeline.spark import java_start as javastart
from vedur.pipeline.spark.java_start import OPTIONS, QUICK, archive, java_settings, usable


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a Spark that are nothing but files, and a cache of our own."""
    home = tmp_path / "java"
    for name in ("bin/java", "lib/modules"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


def made() -> Path:
    path = archive()
    assert path is not None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(0o600)
    return path


def test_what_the_ini_says_comes_last(java: Path) -> None:
    assert java_settings({})[OPTIONS] == QUICK
    assert java_settings({OPTIONS: "-Xss4m"})[OPTIONS] == f"{QUICK} -Xss4m"


def test_a_client_of_spark_connect_starts_no_java(java: Path) -> None:
    assert java_settings({"spark.remote": "sc://host"}) == {}


def test_an_archive_is_used_where_there_is_one(java: Path) -> None:
    path = made()
    assert f"-XX:SharedArchiveFile={path}" in java_settings({})[OPTIONS]


def test_another_java_or_spark_has_another_archive(java: Path) -> None:
    first = archive()
    os.utime(java / "lib" / "modules", (1, 1))
    second = archive()
    os.utime(Path(os.environ["SPARK_HOME"]) / "jars", (1, 1))
    assert len({first, second, archive()}) == 3


def test_no_java_no_archive(java: Path) -> None:
    (java / "lib" / "modules").unlink()
    assert archive() is None
    assert java_settings({})[OPTIONS] == QUICK


@pytest.mark.parametrize("place", ["file", "directory"])
def test_what_others_can_write_is_not_run(java: Path, place: str) -> None:
    path = made()
    assert usable(path)
    (path if place == "file" else path.parent).chmod(0o777)
    assert not usable(path)
    assert "SharedArchiveFile" not in java_settings({})[OPTIONS]


def test_only_the_newest_archives_stay(java: Path) -> None:
    current = made()
    for age in range(6):
        old = current.with_name(f"java-{age}.jsa")
        old.touch()
        os.utime(old, (age, age))
    javastart._remove_old(current)
    left = sorted(p.name for p in current.parent.iterdir())
    assert left == sorted([current.name, "java-3.jsa", "java-4.jsa", "java-5.jsa"])
