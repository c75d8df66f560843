"""What becomes of section [spark]."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from vedur.errors import ConfigError
from vedur.pipeline.spark import session


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (None, "local[*,4]"),
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_tasks_of_a_local_master_are_tried_again(given: str | None, used: str) -> None:
    assert session._merged({"spark.master": given} if given else {})["spark.master"] == used


@pytest.mark.parametrize(
    ("master", "most", "used"),
    [
        ("local[*]", 8, "local[8,4]"),
        ("local[*]", 16, "local[*,4]"),
        ("local[*]", None, "local[*,4]"),
        ("local[12]", 8, "local[12,4]"),  # said by name
        ("spark://host:7077", 8, "spark://host:7077"),
    ],
)
def test_all_cores_means_no_more_than_there_are_connections(
    monkeypatch: pytest.MonkeyPatch, master: str, most: int | None, used: str
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert session._merged({"spark.master": master}, most)["spark.master"] == used


def test_the_number_of_attempts_can_be_set() -> None:
    wanted = session._merged({"spark.master": "local[3]", "spark.task.maxFailures": "9"})
    assert wanted["spark.master"] == "local[3,9]"


def test_a_cluster_is_not_told_to_call_back_to_the_loopback() -> None:
    assert "spark.driver.host" not in session._merged({"spark.master": "spark://host:7077"})
    assert session._merged({})["spark.driver.host"] == "127.0.0.1"


def test_tasks_here_are_forked_from_a_process_that_has_our_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "spark.python.daemon.module"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert session._merged({})[key] == "vedur.pipeline.spark.task_process"
    assert key not in session._merged({"spark.master": "spark://host:7077"})
    assert key not in session._merged({"spark.pyspark.python": "/usr/bin/python3"})
    assert session._merged({key: "own"})[key] == "own"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python3")
    assert key not in session._merged({})


def test_spark_connect_gets_what_the_ini_says_and_nothing_else() -> None:
    given = {"spark.remote": "sc://host:15002", "spark.sql.session.timeZone": "UTC"}
    assert session._merged(given) == given


def test_no_password_becomes_a_setting() -> None:
    with pytest.raises(ConfigError, match=r'"spark\.x" holds a password'):
        session._merged({"spark.x": "host=a password=b"})


def test_spark_connect_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name == "grpc" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ConfigError, match=r'"grpc" is missing: run "pip install \'vedur\[connect'):
        session._require_connect()


def test_sparks_pages_are_off_unless_asked_for() -> None:
    assert session._merged({})["spark.ui.enabled"] == "false"
    assert session._merged({"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"
