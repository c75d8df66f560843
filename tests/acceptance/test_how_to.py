"""How-to pages do what they say: their files are written, their commands run, outputs compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import test_tutorial as harness
from tests.fixtures.pg import VERSIONS, Servers

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize(
    "name,commands", [("first-pair", 15), ("upgrade", 25), ("subset", 15), ("repair", 15)]
)
def test_page(name: str, commands: int, servers: Servers, tmp_path: Path) -> None:
    versions = min(VERSIONS), max(VERSIONS)
    assert follow(PAGES / f"{name}.md", versions, servers, tmp_path) >= commands


@pytest.mark.skipif(not shutil.which("londiste"), reason="Londiste 3 is not installed")
def test_replace_londiste(servers: Servers, tmp_path: Path) -> None:
    """Its extensions are there for PostgreSQL 15."""
    assert follow(PAGES / "replace-londiste.md", (15, 15), servers, tmp_path) >= 25


def follow(page: Path, versions: tuple[int, int], servers: Servers, tmp_path: Path) -> int:
    """Do what the page says; the number of its commands."""
    first = servers.private(versions[0])
    second = servers.private(versions[1])
    ports = {"5501": str(first.port), "5502": str(second.port)}

    def here(text: str) -> str:
        return re.sub("5501|5502", lambda found: ports[found[0]], text)

    tools = [Path(sys.executable).parent, second.binaries.bindir, os.environ["PATH"]]
    ran = 0
    try:
        for kind, file, text in harness.BLOCK.findall(page.read_text("utf-8")):
            if file:
                (tmp_path / file).write_text(here(text))
            elif kind == "console":
                for command, want in harness._commands(text):
                    harness._run(here(command), want, tmp_path, os.pathsep.join(map(str, tools)))
                    ran += 1
    finally:
        for ini in tmp_path.glob("*.ini"):
            tool = "pgqd" if ini.name == "pgqd.ini" else "londiste3"
            command = [Path(sys.executable).with_name(tool), "-k", ini.name]
            subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
    return ran
