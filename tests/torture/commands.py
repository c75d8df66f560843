"""Operator's commands without the second that Python needs to start.

A server process has everything imported and forks for each command, so a command is a process of
its own that can be killed, and still answers in a tenth of a second.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Done:
    """How a command ended; `code` is -9 where it was killed."""

    code: int
    out: str
    err: str


class Commands:
    """Client of the server process, which lives as long as this object."""

    def __init__(self, base: Path, env: dict[str, str]) -> None:
        self.base = base
        self.path = str(base / "commands.sock")
        with (base / "log" / "commands.out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.torture.commands", self.path],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=base,
            )  # fmt: skip

    def run(self, *args: str, control: str = "", timeout: float = 120.0) -> Done:
        """`londiste3 args`, to its end; a command that takes too long is killed."""
        with (
            tempfile.TemporaryDirectory(dir=self.base) as place,
            socket.socket(socket.AF_UNIX) as link,
        ):
            link.settimeout(timeout)
            self._connect(link)
            asked = {"place": place, "control": control or f"{place}/none", "args": args}
            link.sendall(json.dumps(asked).encode() + b"\n")
            with link.makefile("r") as answers:
                pid = int(answers.readline())
                try:
                    code = int(answers.readline() or -9)
                except TimeoutError:
                    os.kill(pid, 9)
                    code = -99
            out, err = (Path(place, name).read_text(errors="replace") for name in ("out", "err"))
        return Done(code, out, err)

    def _connect(self, link: socket.socket) -> None:
        import time

        for _ in range(1200):  # a busy machine takes its time to import everything
            try:
                link.connect(self.path)
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the command server does not answer: see log/commands.out")

    def close(self) -> None:
        """End the server process."""
        self.process.terminate()
        self.process.wait()


def _serve(path: str) -> None:
    import signal

    import vedur.cli.commands
    import vedur.cli.main
    import vedur.ops.compare
    import vedur.ops.execute.run
    import vedur.ops.repair
    import vedur.ops.show  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(16)
    while True:
        link, _ = server.accept()
        if os.fork() == 0:
            server.close()
            # Spark waits for its Java: children must be waited for again
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(link)
        link.close()


def _answer(link: socket.socket) -> None:
    from tests.torture.entry import run

    code = 255
    try:
        with link.makefile("r") as asked:
            wanted = json.loads(asked.readline())
        link.sendall(f"{os.getpid()}\n".encode())
        for number, name in ((1, "out"), (2, "err")):
            fd = os.open(f"{wanted['place']}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(fd, number)
        os.setsid()
        code = run(wanted["control"], "londiste3", wanted["args"])
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            link.sendall(f"{code}\n".encode())
        finally:
            os._exit(code & 255)


if __name__ == "__main__":
    _serve(sys.argv[1])
