"""Several workers in one process: what others see of one while it comes and goes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from vedur.config import LondisteSettings
from vedur.control import Control, ask, control_path
from vedur.ops.processes.many import ManyWorkers
from vedur.ops.processes.worker import WorkerOptions


@pytest.mark.parametrize("stale", [False, True], ids=["new", "stale"])
def test_who_sees_a_pidfile_finds_the_socket_beside_it(
    stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, `-s` of one queue is a signal, and that is for all of them."""
    with tempfile.TemporaryDirectory(prefix="vedur-") as place:  # short enough for a socket
        pidfiles = [f"{place}/{name}.pid" for name in "ab"]
        several = [
            LondisteSettings(
                db=f"dbname={number}", queue_name="q", job_name=f"j{number}", pidfile=pidfile
            )
            for number, pidfile in enumerate(pidfiles)
        ]
        seen: list[bool] = []
        link, rename, close = os.link, Path.rename, Control.close

        def watched_link(temp: str, path: str) -> None:
            seen.append(Path(control_path(path)).exists())
            link(temp, path)

        def watched_rename(temp: Path, path: str) -> Any:
            seen.append(Path(control_path(path)).exists())
            return rename(temp, path)

        def watched_close(control: Control) -> None:
            seen.append(not Path(control._path.removesuffix(".control")).exists())
            close(control)

        if stale:
            for pidfile in pidfiles:
                Path(pidfile).write_text("x\n")
        monkeypatch.setattr(Path, "rename", watched_rename)
        if not stale:
            monkeypatch.setattr(os, "link", watched_link)
        monkeypatch.setattr(Control, "close", watched_close)
        many = ManyWorkers(several, WorkerOptions())
        many._claim()
        try:
            assert seen == [True, True]
            assert ask(pidfiles[0], "reload")
        finally:
            many._let_go()
        assert seen == [True] * 4
        assert list(Path(place).iterdir()) == []
