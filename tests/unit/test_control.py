"""Requests to one worker among several: a word, an answer, and nothing that hangs."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.wait import until
from vedur.control import Control, ask, control_path
from vedur.errors import ConfigError, StateError


@pytest.fixture
def pidfile() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vedur-") as place:  # short enough for a socket
        yield f"{place}/a.pid"


def test_a_word_is_heard_once(pidfile: str) -> None:
    heard: list[str] = []
    control = Control(pidfile, heard.append)
    try:
        assert Path(control_path(pidfile)).stat().st_mode & 0o777 == 0o600
        assert ask(pidfile, "reload")
        assert ask(pidfile, "stop")
        assert until(lambda: heard == ["reload", "stop"])
    finally:
        control.close()
    assert not Path(control_path(pidfile)).exists()


def test_nobody_listens(pidfile: str) -> None:
    assert not ask("", "stop")
    assert not ask(pidfile, "stop")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(control_path(pidfile))
    assert not ask(pidfile, "stop"), "the process was killed: its socket is left behind"
    heard: list[str] = []
    control = Control(pidfile, heard.append)  # and replaced
    try:
        assert ask(pidfile, "stop")
    finally:
        control.close()


def test_one_that_goes_while_it_is_asked(pidfile: str) -> None:
    with socket.socket(socket.AF_UNIX) as rude:
        rude.bind(control_path(pidfile))
        rude.listen()

        def hang_up() -> None:
            for _ in range(2):
                rude.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert ask(pidfile, "stop"), "it has ended, as asked"
        with pytest.raises(StateError, match="is ending, and does not read its ini again"):
            ask(pidfile, "reload")
        thread.join()


def test_two_cannot_listen_for_one_pidfile(pidfile: str) -> None:
    control = Control(pidfile, lambda word: None)
    try:
        with pytest.raises(StateError, match="cannot listen on"):
            Control(pidfile, lambda word: None)
    finally:
        control.close()


def test_a_socket_that_was_removed_is_made_again(pidfile: str) -> None:
    heard: list[str] = []
    control = Control(pidfile, heard.append)
    try:
        Path(control_path(pidfile)).unlink()
        control.keep()
        assert ask(pidfile, "stop")
        assert until(lambda: heard == ["stop"])
    finally:
        control.close()
    control.keep()
    assert not Path(control_path(pidfile)).exists(), "one that is closed stays closed"


def test_one_that_is_closed_meanwhile_stays_closed(pidfile: str) -> None:
    """The main thread looks after a socket while the thread of its worker ends."""

    class Closed(Control):
        closer: threading.Thread | None = None

        def _is_there(self) -> bool:
            there = super()._is_there()
            if not there and self.closer is None:
                self.closer = threading.Thread(target=self.close)
                self.closer.start()
                self.closer.join(0.5)
            return there

    control = Closed(pidfile, lambda word: None)
    Path(control_path(pidfile)).unlink()
    control.keep()
    assert control.closer is not None
    control.closer.join(60)
    assert not Path(control_path(pidfile)).exists()
    assert not ask(pidfile, "stop")


@pytest.mark.parametrize("said", [b"", b"x" * 100, b"stop"], ids=["nothing", "noise", "half"])
def test_noise_is_no_word(pidfile: str, said: bytes) -> None:
    heard: list[str] = []
    control = Control(pidfile, heard.append)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(control_path(pidfile))
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(10) == b""
        assert ask(pidfile, "reload")
        assert until(lambda: heard == ["reload"])
    finally:
        control.close()


def test_a_path_that_no_socket_can_have() -> None:
    with pytest.raises(ConfigError, match="too long for a worker in a process of several"):
        control_path("/" + "x" * 110)
    assert not ask("/" + "x" * 110, "stop")
