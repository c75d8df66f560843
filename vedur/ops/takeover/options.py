"""The command line of takeover, and its hook."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
from dataclasses import dataclass

from vedur.config import LondisteSettings
from vedur.db.conninfo import without_secrets
from vedur.errors import StateError
from vedur.failpoint import reach

log = logging.getLogger(__name__)

#: Seconds that the new root may be behind before anything is closed.
MAX_LAG = 10.0
#: Seconds for which writers may be refused; then the old root is opened again.
TIMEOUT = 30.0


@dataclass(frozen=True)
class TakeoverOptions:
    """The command line's share."""

    node: str | None = None
    everybody: bool = False  # --all
    dead: tuple[str, ...] = ()
    dead_root: bool = False
    dead_branch: bool = False
    dry_run: bool = False
    abort: bool = False
    compare: bool = True  # the old root with the new one, afterwards
    max_lag: float | None = None  # --max-lag, of a root that answers
    timeout: float = TIMEOUT

    @property
    def lag(self) -> float:
        """Seconds that the new root may be behind before anything is closed."""
        return MAX_LAG if self.max_lag is None else self.max_lag


def run_hook(
    settings: LondisteSettings, moment: str, old: str, new: str, location: str, timeout: float
) -> None:
    """Run `takeover_hook` with the moment (before, after, abort) and the names of both nodes;
    raises where it fails."""
    if not settings.takeover_hook:
        return
    words = [*shlex.split(settings.takeover_hook), moment, old, new]
    env = {**os.environ, "VEDUR_ROOT_LOCATION": without_secrets(location)}
    log.info("Running the hook: %s", shlex.join(words))
    try:
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=max(timeout, 1.0), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"takeover_hook cannot be run: {error}") from error
    for line in (done.stdout + done.stderr).splitlines():
        log.info("hook: %s", line)
    if done.returncode != 0:
        raise StateError(f"takeover_hook ended with exit code {done.returncode} ({moment})")
    reach("takeover.hooked")
