"""The process that tasks are forked from, begun early: who gets what Java has given, who ends."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fixtures.wait import until
from vedur.pipeline.spark import early, session
from vedur.pipeline.spark.early import MODULE, PLACE, EarlyProcess, hand_over


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EarlyProcess]:
    """An early process, as its driver begins it."""
    for name in ("SPARK_HOME", "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)
    made = EarlyProcess(tmp_path)
    made.start()
    assert os.environ[PLACE] == str(made.path)
    assert until(made.path.exists, 30)
    yield made
    made.end(0)
    assert PLACE not in os.environ


Started = subprocess.Popen[bytes]


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Start what Spark would start, with its environment."""
    started: list[Started] = []

    def begin(**more: str) -> Started:
        env = {**os.environ, "PYTHONHASHSEED": "0", "SPARK_REUSE_WORKER": "1", **more}
        command = [sys.executable, "-m", MODULE, "pyspark.worker"]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=env))
        return started[-1]

    yield begin
    for process in started:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.kill()
        process.wait()


def port_of(process: Started) -> int:
    """The port that Java is told."""
    assert process.stdout is not None
    (port,) = struct.unpack("!i", process.stdout.read(4))
    return int(port)


def close(process: Started) -> None:
    """Do what Java does at its end."""
    assert process.stdin is not None
    process.stdin.close()


def pid_of(process: EarlyProcess) -> int:
    assert process._process is not None
    return process._process.pid


def has_ended(process: EarlyProcess) -> bool:
    assert process._process is not None
    return process._process.poll() is not None


def stands_for_another(process: Started) -> bool:
    """Is it but a small process that waits?"""
    return Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"cat\0"


def forks(pid: int, port: int) -> bool:
    """Does a connection to the port have this process fork a child?"""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with socket.create_connection(("127.0.0.1", port)):
        return until(lambda: bool(children.read_text().split()), 30)


def test_it_gets_what_spark_has_started(begun: EarlyProcess, start: Callable[..., Started]) -> None:
    spark = start()
    port = port_of(spark)
    assert until(lambda: stands_for_another(spark))
    assert forks(pid_of(begun), port)
    assert not begun.path.exists()
    begun.leave()  # its driver has nothing more to do with it
    assert forks(pid_of(begun), port)
    close(spark)
    assert spark.wait(30) == 0
    assert until(lambda: has_ended(begun), 30)


def test_a_second_one_does_the_work_itself(
    begun: EarlyProcess, start: Callable[..., Started]
) -> None:
    first = start()
    port_of(first)
    second = start()
    assert forks(second.pid, port_of(second))
    assert not stands_for_another(second)
    close(second)
    second.wait(30)
    assert not has_ended(begun)


@pytest.mark.parametrize("more", [{"PYTHONHASHSEED": "1"}, {PLACE: "/nowhere"}, {PLACE: ""}])
def test_one_that_it_does_not_fit_does_the_work_itself(
    begun: EarlyProcess, start: Callable[..., Started], more: dict[str, str]
) -> None:
    spark = start(**more)
    assert forks(spark.pid, port_of(spark))
    assert not stands_for_another(spark)
    begun.leave()
    assert until(lambda: has_ended(begun), 30)  # nobody wants it


def test_one_that_is_killed_while_it_loads_is_done_without(
    begun: EarlyProcess, start: Callable[..., Started]
) -> None:
    os.kill(pid_of(begun), signal.SIGKILL)
    spark = start()
    assert forks(spark.pid, port_of(spark))
    assert not stands_for_another(spark)


def test_it_ends_with_its_driver(begun: EarlyProcess) -> None:
    begun.leave()
    assert until(lambda: has_ended(begun), 30)


def test_java_sees_that_it_is_gone(begun: EarlyProcess, start: Callable[..., Started]) -> None:
    spark = start()
    port_of(spark)
    os.kill(pid_of(begun), signal.SIGKILL)
    assert spark.wait(30) == 0


def test_it_ends_with_java_whatever_has_become_of_the_other(
    begun: EarlyProcess, start: Callable[..., Started]
) -> None:
    spark = start()
    port_of(spark)
    spark.kill()
    assert not has_ended(begun)
    close(spark)
    assert until(lambda: has_ended(begun), 30)


def test_one_that_has_handed_over_never_does_the_work_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(*_args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    ours, other = socket.socketpair()
    with ours, other:
        other.sendall(b"\0\0\0\2\xff\xff")  # not what was agreed on
        other.shutdown(socket.SHUT_WR)
        monkeypatch.setattr(os, "dup2", lambda *_args: 0)
        monkeypatch.setattr(os, "open", no_more)
        early._stand_for(ours)


def test_another_user_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "early"
    said: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def listen() -> None:
            visitor, _ = listening.accept()
            with visitor, contextlib.suppress(ConnectionError):
                visitor.sendall(early._pack(early._self()))
                said.append(visitor.recv(100))

        thread = threading.Thread(target=listen)
        thread.start()
        monkeypatch.setenv(PLACE, str(path))
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setattr(early, "_stand_for", lambda _early: pytest.fail("it hands over"))
        assert not hand_over()
        thread.join()
    assert b"".join(said) == b""


def test_it_is_left_out_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = EarlyProcess(tmp_path / ("x" * 100))
    far.start()
    monkeypatch.setenv("SPARK_HOME", "/opt/another-spark")
    other = EarlyProcess(tmp_path)
    other.start()
    for process in (far, other):
        assert process._process is None
        process.end(0)
    assert PLACE not in os.environ


@pytest.mark.parametrize(
    "wanted",
    [
        {"spark.remote": "sc://there"},
        {"spark.master": "spark://there:7077", "spark.python.daemon.module": MODULE},
        {"spark.master": "local[2,4]", "spark.python.daemon.module": "pyspark.daemon"},
        {"spark.master": "local[2,4]"},
        {
            "spark.master": "local[2,4]",
            "spark.python.daemon.module": MODULE,
            "spark.executorEnv.TZ": "Asia/Tokyo",
        },
    ],
)
def test_only_a_local_java_that_asks_for_it_has_one(
    wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_scratch", SimpleNamespace(path=Path("/nowhere")))
    monkeypatch.setattr(session, "_LATER", ("no.such.library",))
    monkeypatch.setattr(EarlyProcess, "start", lambda _self: pytest.fail("it is begun"))
    with session._beside_java(wanted):
        assert session._early is None
