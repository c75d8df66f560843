"""What Java says when it cannot start is kept, and the error names the place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from vedur.errors import StateError
from vedur.pipeline.spark.session import start_session

try:
    options = {"spark.driver.extraJavaOptions": "-agentlib:nosuch"}
    start_session("x", options, sys.argv[1], echo=True)
except StateError as error:
    print(error.message)
"""


def test_a_java_that_cannot_start(tmp_path: Path) -> None:
    path = tmp_path / "w.log.spark"
    for place in (str(path), ""):
        words = [sys.executable, "-c", CODE, place]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.startswith("Spark cannot be started (")
        assert len(done.stdout.splitlines()) == 1
        assert (f'see "{path}"' in done.stdout) == bool(place)
        assert ("Could not find agent library nosuch" in done.stderr) == (
            not place
        )  # -v, and no file
    assert "Could not find agent library nosuch" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
