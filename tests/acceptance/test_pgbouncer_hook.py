"""The hook of docs/how-to/failover.md writes any location, or fails before anybody is let go."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import vedur

PAGE = Path(vedur.__file__).parents[1] / "docs" / "how-to" / "failover.md"
SOCKET = "host=/var/run/postgresql port=5432 dbname=shop options='-c a=b&c\\d|e'"


@pytest.mark.parametrize(
    ("lines", "location", "works"),
    [
        (["other = host=a", "shop = host=10.0.0.1 dbname=shop", "last ="], SOCKET, True),
        (["shop=host=10.0.0.1"], "host=10.0.0.2 dbname=shop", True),
        (["shopping = host=10.0.0.1"], SOCKET, False),  # no line to change
        (["shop = host=10.0.0.1"], "", False),
    ],
)
def test_the_pooler_leads_to_the_new_root_or_holds_on(
    tmp_path: Path, lines: list[str], location: str, works: bool
) -> None:
    found = re.search(r"```text\n(#!/bin/sh\n# takeover_hook.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    listed, asked, hook = tmp_path / "databases.ini", tmp_path / "asked", tmp_path / "hook"
    listed.write_text("".join(f"{line}\n" for line in lines))
    hook.write_text(found[1].replace("/etc/pgbouncer", str(tmp_path)))
    console = tmp_path / "psql"  # of pgbouncer, where it only matters what it is asked for
    console.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    console.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "VEDUR_ROOT_LOCATION": location,
    }
    done = subprocess.run(["sh", str(hook), "after", "old", "new"], env=env, capture_output=True)
    assert (done.returncode == 0) is works, done.stderr
    assert ("resume shop" in asked.read_text() if asked.exists() else False) is works
    if works:
        wanted = [f"shop = {location}" if re.match("shop *=", line) else line for line in lines]
        assert listed.read_text().splitlines() == wanted
    else:
        assert listed.read_text().splitlines() == lines
