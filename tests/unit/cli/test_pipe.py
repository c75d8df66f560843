"""What commands say beside their results: nothing to a reader who left, no old news of the ini."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vedur.cli.main import main

INI = """
[londiste3]
db = host=127.0.0.1 port=1 dbname=x
queue_name = q
sql_retry = 1
paralel_copies = 2
"""


@pytest.fixture
def ini(tmp_path: Path) -> str:
    path = tmp_path / "a.ini"
    path.write_text(INI)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("many", [1, 3000])
def test_a_reader_that_has_left_is_no_error(ini: str, many: int) -> None:
    """`| head -1`: in the middle of the output, and at its end."""
    code = "import sys; from vedur.cli.main import main; sys.exit(main('londiste3', sys.argv[1:]))"
    words = [sys.executable, "-c", code, "-q", ini, "show-handlers", *["londiste"] * many]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=60) == 0
    assert "BrokenPipe" not in said
    assert "BUG" not in said


def test_keys_without_effect_are_told_by_the_worker_only(
    ini: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("londiste3", [ini, "show-handlers"]) == 0
    said = capsys.readouterr().err
    assert "sql_retry" not in said
    assert 'unknown key "paralel_copies" is ignored, did you mean "parallel_copies"' in said
    assert main("londiste3", [ini, "-d", "worker"]) != 0  # it has no pidfile
    assert '"sql_retry" has no effect' in capsys.readouterr().err
    assert main("londiste3", [ini, "-q", "-d", "worker"]) != 0
    assert "sql_retry" not in capsys.readouterr().err
