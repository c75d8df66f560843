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
from tests.fixtures.wants import wanting
from vedur import db as vdb
from vedur.demo.server import free_port

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"


@pytest.mark.parametrize(
    "name,commands",
    [
        ("first-pair", 15),
        ("upgrade", 25),
        ("failover", 32),
        ("subset", 15),
        ("repair", 15),
        ("find-why-a-row-differs", 28),
        ("change-tables", 25),
        ("cascade", 40),
        ("combined-queue", 35),
        ("mask-personal-data", 15),
        ("partitions", 20),
        ("merge-shards", 30),
        ("reshard", 45),
    ],
)
def test_page(name: str, commands: int, servers: Servers, tmp_path: Path) -> None:
    versions = min(VERSIONS), max(VERSIONS)
    assert follow(PAGES / f"{name}.md", versions, servers, tmp_path) >= commands


@pytest.mark.skipif(not shutil.which("londiste"), reason=wanting("upstream's londiste"))
def test_replace_londiste(servers: Servers, tmp_path: Path) -> None:
    """Its extensions are there for PostgreSQL 15."""
    assert follow(PAGES / "replace-londiste.md", (15, 15), servers, tmp_path) >= 25


def test_readme(servers: Servers, tmp_path: Path) -> None:
    """Its pair, pasted into a shell, of databases that were there before; then what it shows."""
    first, second = servers.private(min(VERSIONS)), servers.private(max(VERSIONS))
    text = (ROOT / "README.md").read_text("utf-8")
    for name, server in (("5501", first), ("5502", second)):
        text = text.replace(f"port={name} ", f"port={server.port} ")
    blocks = [(kind, body) for kind, _, body in harness.BLOCK.findall(text)]
    pasted = "".join(body for kind, body in blocks if kind == "bash")
    begin, pasted = pasted.split("\n", 1)
    assert begin == "make dev && export PATH=$PWD/.venv/bin:$PATH"
    with vdb.connect(first.connstr(), autocommit=True) as db:
        db.execute("create database shop")
    with vdb.connect(first.connstr("shop"), autocommit=True) as db:
        db.execute("create table orders (id serial primary key, customer text not null)")
        db.execute("insert into orders (customer) select i from generate_series(1, 2000) i")
    with vdb.connect(second.connstr(), autocommit=True) as db:
        db.execute("create database shop_copy")
    # another page may be at that port
    pasted = re.sub("^web_port = 8060$", f"web_port = {free_port()}", pasted, flags=re.M)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", pasted], cwd=tmp_path, env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        with vdb.connect(first.connstr("shop"), autocommit=True) as db:
            db.execute("update orders set customer = 'Mrs. Late' where id = 7")
        shown = [pair for kind, body in blocks if kind == "console"
                 for pair in harness._commands(body)]  # fmt: skip
        assert len(shown) == 2
        for command, want in shown:
            harness._run(command, want, tmp_path, path)
        with vdb.connect(second.connstr("shop_copy"), autocommit=True) as db:
            assert db.value("select customer from orders where id = 7") == "Mrs. Late"
            assert db.value("select count(*) from orders") == 2000
    finally:
        _kill(tmp_path)


#: What the page tells the reader to imagine, and a block of it.
PART = re.compile(f"<!-- test: the first server is (killed|started) -->|{harness.BLOCK.pattern}",
                  harness.BLOCK.flags)  # fmt: skip


#: What differs from run to run in what a page shows of the queue.
NUMBERS = [
    (re.compile(r"^\d+\|\d+\|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|", re.M), "EVENT|TICK|TIME|"),
    (re.compile(r"ticks: after \d+ up to \d+"), "ticks: after N up to N"),
    (re.compile(r"\bcapture_\d+_\w+"), "capture_OID_HASH"),
]


def follow(page: Path, versions: tuple[int, int], servers: Servers, tmp_path: Path) -> int:
    """Do what the page says; the number of its commands."""
    # one page kills the first, and goes on with what it had committed
    first = servers.private(versions[0], synchronous_commit="on")
    second = servers.private(versions[1])
    ports = {"5501": str(first.port), "5502": str(second.port)}

    def here(text: str) -> str:
        return re.sub("5501|5502", lambda found: ports[found[0]], text)

    tools = [Path(sys.executable).parent, second.binaries.bindir, os.environ["PATH"]]
    ran = 0
    try:
        for deed, kind, file, text in PART.findall(page.read_text("utf-8")):
            if deed:
                first.kill() if deed == "killed" else first.start()
            elif file:
                (tmp_path / file).write_text(here(text))
            elif kind == "console":
                for command, want in harness._commands(text):
                    path = os.pathsep.join(map(str, tools))
                    harness._run(here(command), want, tmp_path, path, NUMBERS)
                    ran += 1
    finally:
        _kill(tmp_path)
    return ran


def _kill(place: Path) -> None:
    for ini in place.glob("*.ini"):
        tool = "pgqd" if ini.name.startswith("pgqd") else "londiste3"
        command = [Path(sys.executable).with_name(tool), "-k", ini.name]
        subprocess.run(command, cwd=place, check=False, capture_output=True)
