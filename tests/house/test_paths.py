"""No file tells on whose machine it was made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.torture.campaign import Campaign
from tests.torture.neutral import neutral

ROOT = Path(__file__).parents[2]
#: A home (the tutorial's and a test's are invented), a build's directory, a laboratory's name.
MACHINE = re.compile(
    r"(?<![\w.})/>-])/(?:(?:work|root|farm|workspace|builds)/[\w.]|home/(?!(?:postgres|dba)\b)\w|Users/\w)"
    r"|/tmp/(?!vedur-demo-x1y2z3)[\w.-]*[-_][a-z0-9_]{8}\b"
)


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a clone: git does not say which files are part of it")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_file_names_a_directory_of_a_machine() -> None:
    found = []
    for path in tracked():
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line[max(0, hit.start() - 20) : hit.end() + 40]}"
            for number, line in enumerate(text.splitlines(), 1)
            for hit in MACHINE.finditer(line)
        ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["at /work/x/vedur", "'/root/.pgpass'", "/home/ann/x", "/Users/ann", "/tmp/vedur-lab-a6xcdpbz"],
)
def test_the_pattern_knows_a_machine(text: str) -> None:
    assert MACHINE.search(text)


@pytest.mark.parametrize("text", ["{base}/root/postgres.log", "a/work/b", "/home/postgres/log"])
def test_the_pattern_knows_what_is_none(text: str) -> None:
    assert not MACHINE.search(text)


def test_a_record_of_the_campaign_is_neutral(tmp_path: Path) -> None:
    """As the campaign writes it, without its servers."""

    class Rig:
        base = Path(tempfile.gettempdir()) / "vedur-torture-abcdefgh"

    campaign = object.__new__(Campaign)
    campaign.results = tmp_path / "records.jsonl"
    campaign.rig = Rig()  # type: ignore[assignment]
    left = [f"{sys.prefix}/bin/python -m x", f"{ROOT}/vedur", f"{Rig.base}/log", f"{tmp_path}/y"]
    campaign._write({"error": repr(left), "at": str(Path.home() / "x")})
    text = campaign.results.read_text()
    assert json.loads(text)["error"].startswith("['VENV/bin/python -m x', 'REPOSITORY/vedur', 'LAB")
    for path in (sys.prefix, ROOT, tempfile.gettempdir(), Path.home()):
        assert str(path) not in text
    assert neutral('"nothing of a machine"') == '"nothing of a machine"'
