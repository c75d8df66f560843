"""The page beside a worker or alone: it follows the ini and never harms the worker."""

from __future__ import annotations

import dataclasses
import http.client
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs.status_page import QUEUE, SetLab
from vedur.demo.server import free_port
from vedur.errors import StateError
from vedur.ops.processes import web
from vedur.ops.processes.page_beside import PageBeside
from vedur.ops.processes.worker import WorkerOptions, WorkerProcess
from vedur.web.server import listen


@pytest.fixture
def beside() -> Iterator[PageBeside]:
    page = PageBeside()
    yield page
    page.stop()


def answers(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_follows_the_ini(lab: SetLab, beside: PageBeside) -> None:
    settings = lab.sessions["src"].settings
    beside.follow(settings)
    assert beside._page is None
    first = dataclasses.replace(settings, web_port=free_port())
    beside.follow(first)
    assert answers(first.web_port) == 200
    page = beside._page
    beside.follow(dataclasses.replace(first, loop_delay=5.0))
    assert beside._page is page  # its history goes on
    second = dataclasses.replace(settings, web_port=free_port())
    beside.follow(second)
    assert answers(second.web_port) == 200
    with pytest.raises(ConnectionRefusedError):
        answers(first.web_port)
    beside.follow(settings)
    with pytest.raises(ConnectionRefusedError):
        answers(second.web_port)


def test_a_port_that_is_taken_is_a_warning(
    lab: SetLab, beside: PageBeside, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        beside.follow(dataclasses.replace(lab.sessions["src"].settings, web_port=port))
    lines = [(r.levelno, r.getMessage()) for r in caplog.records if r.name.startswith("vedur")]
    assert len(lines) == 1
    assert lines[0][0] == logging.WARNING
    assert f"port {port}" in lines[0][1] and "the worker goes on without it" in lines[0][1]


def test_a_page_that_breaks_is_a_warning(
    lab: SetLab,
    beside: PageBeside,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError("no templates today")

    monkeypatch.setattr(web, "make_app", broken)
    beside.follow(dataclasses.replace(lab.sessions["src"].settings, web_port=free_port()))
    assert "cannot start: no templates today; the worker goes on" in caplog.text


def test_a_worker_of_a_root_serves_it(lab: SetLab) -> None:
    """A root's worker needs no Spark: it runs here, one round, with the page beside it."""
    port = free_port()
    settings = dataclasses.replace(lab.sessions["src"].settings, web_port=port, loop_delay=0.0)
    process = WorkerProcess(settings, WorkerOptions())
    seen: list[int] = []
    process._alive = lambda: seen.append(answers(port))  # type: ignore[method-assign]
    process._signals.install = lambda: None  # type: ignore[method-assign]
    assert process.run() == 0
    assert seen == [200]
    with pytest.raises(ConnectionRefusedError):
        answers(port)


def test_the_command_serves_until_told_to_stop(lab: SetLab, tmp_path: Path) -> None:
    port = free_port()
    ini = tmp_path / "src.ini"
    connstr = lab.sessions["src"].settings.db
    ini.write_text(f"[londiste3]\ndb = {connstr}\nqueue_name = {QUEUE}\njob_name = src_job\n")
    program = [sys.executable, "-m", "vedur", str(ini), "web", f"--port={port}"]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.endswith(f"INFO Status page: http://127.0.0.1:{port}/\n")
        assert answers(port) == 200
        process.send_signal(2)
        assert process.wait(60) == 0
        again = [*program[:-1], "--port=99999"]
        done = subprocess.run(again, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "--port must be between 0 and 65535" in done.stderr
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_systemd_is_told_when_the_page_is_ready(lab: SetLab, tmp_path: Path) -> None:
    ini = tmp_path / "src.ini"
    connstr = lab.sessions["src"].settings.db
    ini.write_text(f"[londiste3]\ndb = {connstr}\nqueue_name = {QUEUE}\njob_name = src_job\n")
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(place))
        line.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "vedur", "-q", str(ini), "web", f"--port={free_port()}"],
            env={**os.environ, "NOTIFY_SOCKET": str(place)},
        )
        try:
            assert line.recv(100) == b"READY=1"
            process.send_signal(2)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StateError, match=f"port {port}: .*; choose another with --port"):
            listen("127.0.0.1", port)
    with pytest.raises(StateError, match="cannot listen"):
        listen("no.such.host.invalid", 8060)
