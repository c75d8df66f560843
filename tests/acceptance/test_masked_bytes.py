"""Masked values leave no clear one behind: every byte that a node writes is searched.

The leaf's server with its WAL, staging tables and log, the worker's log, Spark's event log, its
pages, and all temporary files; real programs, real Spark. The worker is killed in a masked copy and
in a masked batch, an event is quarantined and replayed, and rows are repaired.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_passwords_and_tls import spark_pages
from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from tests.integration.test_obfuscate import (
    DDL,
    FOLK,
    FOLK_RULES,
    MASKED,
    PLANTED,
    RULES,
    expected,
    folk_as_expected,
    insert,
    present,
)
from tests.labs.handlers import KEY
from vedur import db as vdb
from vedur.db import Database
from vedur.demo import leftover
from vedur.demo.lab import Lab
from vedur.demo.server import free_port

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
#: What the log of a server has of its own, and WAL of its catalogs, is none of the planted.
WORDS = tuple(word.encode() for word in PLANTED)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab(new_place("vedur-lab-"))
    place = made.base / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    try:
        yield made
    finally:
        made.close()


def holding(base: Path, without: Path) -> list[str]:
    """Files that hold a planted value, but for those below `without`."""
    found = []
    for path in base.rglob("*"):
        if without in path.parents or not path.is_file():
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # one that lived for a moment
            continue
        found += [f"{path}: {word.decode()}" for word in WORDS if word in data]
    return found


class Doomed:
    """The worker of the leaf, which can be told to die at a failpoint."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.control = lab.base / "arm.dst"

    def start(self, point: str = "") -> None:
        """Start it; with a point it dies where it comes there first."""
        if point:
            self.control.write_text(json.dumps({"point": point, "action": "kill"}))
        words = [sys.executable, "-m", "tests.torture.entry", str(self.control), "londiste3"]
        words += ["-v", "-v", "-d", str(self.lab.inis["dst"]), "worker"]
        env = os.environ | leftover.marks(self.lab.base)
        done = subprocess.run(
            words, cwd=ROOT, env=env, start_new_session=True, timeout=300, check=False,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def wait_for_death(self) -> None:
        """Wait until the point was reached, and the process is gone."""
        fired = Path(f"{self.control}.fired")
        pid = int((self.lab.base / "pid" / "dst.pid").read_text())
        self.lab.wait(fired.exists, "the failpoint", 300.0)
        self.lab.wait(lambda: not leftover.alive(pid), "the worker's death", 60.0)
        fired.unlink()


def quarantine_and_repair(lab: Lab, source: Database, db: Database) -> None:
    """Have an event of masked rows refused and replayed, and rows repaired that differ."""
    db.execute("alter table people add constraint c check (country <> 'no') not valid")
    source.execute("update people set country = 'no', name = 'planted apart' where id = 2")
    lab.londiste("dst", "wait-root", timeout=600.0)
    source.execute("update people set name = 'planted after it', country = 'is' where id = 2")
    lab.londiste("dst", "wait-root", timeout=600.0)
    assert db.value("select count(*) from vedur.quarantine") > 0
    assert holding(lab.base, lab.servers["root"].base) == []
    db.execute("alter table people drop constraint c")
    lab.londiste("dst", "quarantine", "replay", timeout=600.0)
    assert db.value("select count(*) from vedur.quarantine") == 0
    db.execute("set session_replication_role = replica")  # past the trigger that refuses it here
    db.execute("delete from people where id = (select min(id) from people)")
    db.execute("update people set name = 'x' where id = (select max(id) from people)")
    db.execute("delete from folk where id in (select id from folk limit 20)")
    assert present(db) != expected(source)
    lab.londiste("dst", "repair", "people", "folk", "--apply", timeout=600.0)
    assert present(db) == expected(source)


def test_no_byte_of_a_clear_value_is_written(lab: Lab) -> None:
    binaries = VERSIONS[max(VERSIONS)]
    # a page in WAL as it is: compressed, it would hide what is searched for
    clear = {"wal_compression": "off", "wal_keep_size": "256MB", "log_statement": "all"}
    root, leaf = (lab.server(side, binaries, **clear) for side in ("root", "leaf"))
    for server, ddl in ((root, DDL), (leaf, MASKED)):
        with vdb.connect(server.connstr(), autocommit=True) as db:
            db.execute("create database shop")
        with vdb.connect(server.connstr("shop"), autocommit=True) as db:
            db.execute(ddl)
            db.execute(FOLK)
    events, port = lab.base / "events", free_port()
    events.mkdir()
    rules = lab.base / "rules.json"
    rules.write_text(json.dumps(RULES | FOLK_RULES))
    there, here = root.connstr("shop"), leaf.connstr("shop")
    lab.worker_ini("src", there, {"node_name": "src", "public_node_location": there})
    lab.worker_ini(
        "dst",
        here,
        {
            "node_name": "dst",
            "public_node_location": here,
            "initial_provider_location": there,
            "obfuscator_map": str(rules),
            "obfuscator_key": KEY,
        },
        "[spark]\nspark.master = local[2]\nspark.eventLog.enabled = true\n"
        f"spark.eventLog.dir = file://{events}\nspark.eventLog.compress = false\n"
        f"spark.log.level = INFO\nspark.ui.enabled = true\nspark.ui.port = {port}\n",
    )
    lab.ticker_ini("root", {"database_list": "shop"})
    with vdb.connect(there, autocommit=True) as source, vdb.connect(here, autocommit=True) as db:
        insert(source, *range(1, 400))
        source.execute(
            "insert into folk select i, 'planted ' || i, '1977-03-01', now(), ''"
            " from generate_series(1, 2000) i"
        )
        lab.londiste("src", "create-root")
        lab.londiste("dst", "create-leaf")
        lab.start_ticker()
        lab.run("londiste3", "-v", "-v", "-d", str(lab.inis["src"]), "worker", timeout=300.0)
        worker = Doomed(lab)
        worker.start("copy.loaded")
        lab.londiste("src", "add-table", "people", "folk")
        lab.londiste("dst", "add-table", "people", "--handler=obfuscate")
        worker.wait_for_death()
        assert holding(lab.base, root.base) == []
        worker.start()
        lab.londiste("dst", "add-table", "folk", "--handler=obfuscate")
        lab.londiste("dst", "wait-sync", timeout=600.0)
        lab.londiste("dst", "change-table", "people", "--on-error=quarantine-row")
        pages = [*spark_pages(port)]  # of the worker that copied
        lab.stop_daemon("dst")
        worker.start("batch.staged")
        insert(source, *range(400, 500))
        worker.wait_for_death()
        assert db.value("select count(*) from people") == 399
        assert holding(lab.base, root.base) == []
        worker.start()
        lab.londiste("dst", "wait-root", timeout=600.0)
        quarantine_and_repair(lab, source, db)
        source.execute("update people set name = 'planted again' where id % 3 = 0")
        source.execute("delete from people where id % 5 = 0")
        source.execute("update folk set name = 'PLANTED ' || id where id > 100")  # by column
        source.execute("delete from folk where id between 500 and 1000")
        lab.londiste("dst", "wait-root", timeout=600.0)
        lab.londiste("dst", "compare", "people", "folk", timeout=600.0)
        assert present(db) == expected(source)
        assert folk_as_expected(source, db)
        pages += spark_pages(port)
        db.execute("checkpoint")
    assert any("folk" in page for page in pages)
    assert not [word for word in PLANTED for page in pages if word in page]
    assert list(events.iterdir()), "Spark wrote no event log"
    assert holding(root.data, lab.base / "nothing"), "the search finds what is on the root"
    assert list((leaf.data / "pg_wal").iterdir())
    assert holding(lab.base, root.base) == []
    for ini in ("dst", "src", "pgqd"):
        lab.stop_daemon(ini)
    assert holding(lab.base, root.base) == []
