"""Help and version answer without the heavy libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "psycopg", "pandas", "pyarrow")


@pytest.mark.parametrize(
    "module,args",
    [
        ("vedur.cli.main:londiste3", ["--help"]),
        ("vedur.cli.main:londiste3", ["--version"]),
        ("vedur.cli.main:londiste3", ["--ini"]),
        ("vedur.cli.pgqd:main", ["--help"]),
        ("vedur.cli.pgqd:main", ["--ini"]),
    ],
)
def test_help_loads_nothing_heavy(module: str, args: list[str]) -> None:
    name, _, function = module.partition(":")
    code = (
        "import sys\n"
        f"sys.argv = ['x'] + {args!r}\n"
        f"from {name} import {function} as main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as e:\n"
        "    assert not e.code, e.code\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "LOADED []"
    assert len(done.stdout.splitlines()) > 1
