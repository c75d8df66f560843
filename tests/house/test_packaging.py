"""What is shipped beside the package: systemd units, and what loads the HTTP server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.wants import wanting

ROOT = Path(__file__).parents[2]


UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))


HTTP = ("starlette", "uvicorn", "jinja2", "prometheus_client")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason=wanting("systemd-analyze"))
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert [unit.name for unit in UNITS] == [
        "vedur-ticker@.service",
        "vedur-web@.service",
        "vedur-worker@.service",
    ]
    bin = str(Path(sys.executable).parent)
    made = []
    for unit in UNITS:
        text = unit.read_text()
        assert text.count("/opt/vedur/bin/") == 1
        made.append(tmp_path / unit.name.replace("@", "@test"))
        made[-1].write_text(text.replace("/opt/vedur/bin", bin))
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, made)], capture_output=True, text=True, check=False
    )
    named = [line for line in done.stderr.splitlines() if "vedur-" in line]
    assert (done.returncode, named) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem.rstrip("@"))
def test_units_wait_for_the_start_and_stop_gently(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert "Type=notify" in lines
    assert "KillSignal=SIGINT" in lines
    assert "Restart=on-failure" in lines and "RestartPreventExitStatus=2" in lines
    assert {"User=vedur", "NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(lines)


@pytest.mark.parametrize(
    "module",
    ["vedur.cli.show", "vedur.cli.doctor", "vedur.cli.worker", "vedur.ops.processes.worker"],
)
def test_only_the_page_loads_the_http_server(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HTTP!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
