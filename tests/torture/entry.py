"""The ordinary commands with a hook in their failpoints; only tests start programs this way.

    python -m tests.torture.entry CONTROL PROGRAM ARGS...

CONTROL is a file that arms one failpoint: `{"point": "batch.merged", "action": "kill",
"skip": 2}`. Whoever fires it renames it to CONTROL.fired, so it fires once. `kill` ends the
process as SIGKILL does, `error` raises, `hold` waits until CONTROL.go appears.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.torture.plain import PLAIN, carry_here
from vedur import failpoint

#: A hold that nobody ends is ended after this many seconds.
HOLD_LIMIT = 120.0
#: A compare that was killed holds the worker this long; 20 s outside the campaign.
COMPARE_HOLD = 8.0


class Fired(Exception):
    """The error that a failpoint raises."""


class Hook:
    """Does what the control file says when its point is reached."""

    def __init__(self, control: Path) -> None:
        self.control = control
        self._lock = threading.Lock()
        self._left: int | None = None

    def __call__(self, name: str) -> None:
        with self._lock:
            wanted = self._armed(name)
        if wanted is not None:
            self._act(name, str(wanted["action"]))

    def _armed(self, name: str) -> dict[str, object] | None:
        try:
            wanted: dict[str, object] = json.loads(self.control.read_text())
        except (FileNotFoundError, ValueError):
            self._left = None
            return None
        if wanted["point"] != name:
            return None
        left = int(str(wanted.get("skip", 0))) if self._left is None else self._left
        if left > 0:
            self._left = left - 1
            return None
        self._left = None
        try:
            self.control.rename(f"{self.control}.fired")
        except FileNotFoundError:
            return None
        return wanted

    def _act(self, name: str, action: str) -> None:
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "error":
            raise Fired(f"failpoint {name}")
        elif action == "hold":
            go = Path(f"{self.control}.go")
            deadline = time.monotonic() + HOLD_LIMIT
            while not go.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            with contextlib.suppress(FileNotFoundError):
                go.unlink()


def run(control: str, program: str, args: list[str]) -> int:
    """Set the hook, then run the program's own main."""
    failpoint.set_hook(Hook(Path(control)))
    from vedur.node import moment

    moment.HOLD = COMPARE_HOLD
    if PLAIN in os.environ:
        carry_here(os.environ[PLAIN])
    if program == "pgqd":
        from vedur.cli import pgqd

        sys.argv = ["pgqd", *args]
        code = pgqd.main()
        return int(code or 0)
    from vedur.cli.main import main as londiste

    return londiste(program, args)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))
