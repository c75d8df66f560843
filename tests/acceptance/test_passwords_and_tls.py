"""A whole set-up where every connection needs TLS and a password, and nothing shows the password.

Passwords are where the manual wants them: in ini files of mode 600, in a `passfile`, and (the
root's) in the location that the nodes keep. They are looked for in every output, log, process
title and environment, in Spark's event log and pages, and in every other file that is written.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.tls import make_authority, require_tls, secret_file
from vedur import db as vdb
from vedur.db.conninfo import with_params
from vedur.demo.lab import Lab, program
from vedur.demo.server import available, free_port
from vedur.demo.story import content

#: The servers of the wheel are built without TLS.
DEBIAN = available("debian").get(15)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(DEBIAN is None, reason="PostgreSQL 15 of Debian is missing"),
]

#: Each has a part that stays the same however the rest is quoted or encoded.
WORDS = ("Wurze1geheim", "B1attgeheim")
ROOT_SECRET, LEAF_SECRET = f"{WORDS[0]} '%\\x", f"{WORDS[1]}%&x"
TABLES = (
    "create table orders (id int primary key, note text);"
    "create table lines (id int primary key, order_id int references orders, n int)"
)
SEEN = """
select a.application_name, s.ssl from pg_stat_activity a join pg_stat_ssl s using (pid)
where a.backend_type = 'client backend'
"""


def found_in(text: str | bytes) -> list[str]:
    """The secrets that a text shows."""
    raw = text.encode() if isinstance(text, str) else text
    return [word for word in WORDS if word.encode() in raw]


class Watch:
    """Looks at all processes and at both servers' connections until it is closed."""

    def __init__(self, *connstrs: str) -> None:
        self.leaks: set[str] = set()
        self.plain: set[str] = set()
        self.names: set[str] = set()
        self._links = [vdb.connect(c, autocommit=True, application_name="watch") for c in connstrs]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for place in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ", "comm"):
                    try:
                        text = (place / name).read_bytes()
                    except OSError:
                        continue
                    self.leaks |= {f"{place.name} {name}: {text[:200]!r}" for _ in found_in(text)}
            for link in self._links:
                for row in link.query(SEEN):
                    self.names.add(row.application_name)
                    if not row.ssl:
                        self.plain.add(row.application_name)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for link in self._links:
            link.close()


class Closed:
    """A lab whose servers ask for TLS and passwords, and all that its commands have said."""

    def __init__(self, lab: Lab) -> None:
        assert DEBIAN is not None
        self.lab = lab
        self.said: list[str] = []
        self.authority = make_authority(lab.base / "tls")
        for path in (lab.base / "tls", self.authority):
            path.chmod(0o755)
        for side, secret in (("root", ROOT_SECRET), ("leaf", LEAF_SECRET)):
            server = lab.server(side, DEBIAN)
            with vdb.connect(server.connstr(), autocommit=True) as db:
                db.execute("create role replicator login")
                db.execute("create database shop owner replicator")
                db.execute("grant set on parameter session_replication_role to replicator")
            roles = {"replicator": secret, "postgres": secret}
            require_tls(server, self.authority, roles)
        leaf = lab.servers["leaf"]
        self.passfile = secret_file(
            lab.base / "passfile", f"127.0.0.1:{leaf.port}:*:replicator:{LEAF_SECRET}\n"
        )

    def connstr(self, side: str, **more: str) -> str:
        """Without a password."""
        base = self.lab.servers[side].connstr("shop", "replicator")
        strict = {"sslmode": "verify-full", "sslrootcert": str(self.authority)}
        return with_params(base, **strict, **more)

    @property
    def root(self) -> str:
        return self.connstr("root", password=ROOT_SECRET)

    @property
    def leaf(self) -> str:
        return self.connstr("leaf", passfile=str(self.passfile))

    def run(self, command: str, *args: str, code: int | None = 0, timeout: float = 300.0) -> str:
        """A command; what it said is kept."""
        done = subprocess.run(
            [program(command), *args], capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        text = done.stdout + done.stderr
        self.said.append(text)
        assert code is None or done.returncode == code, text
        return text

    def londiste(self, ini: str, *args: str, code: int | None = 0) -> str:
        return self.run("londiste3", "-v", str(self.lab.inis[ini]), *args, code=code)


@pytest.fixture
def closed() -> Iterator[Closed]:
    lab = Lab()
    try:
        yield Closed(lab)
    finally:
        lab.close()


def test_only_the_right_authority_and_password_open(closed: Closed) -> None:
    """The laboratory itself: each lock is really locked, and the refusal is one line."""
    lab = closed.lab
    stranger = make_authority(lab.base / "tls", "stranger")
    ways = {
        "plain": (with_params(closed.root, sslmode="disable"), "reject"),
        "stranger": (with_params(closed.root, sslrootcert=str(stranger)), "certificate verify"),
        "no password": (with_params(closed.root, password=None), "no password supplied"),
        "password": (with_params(closed.root, password="Fa1sch"), "password authentication failed"),
    }
    for name, (connstr, said) in ways.items():
        lab.worker_ini(name, connstr)
        text = closed.run("londiste3", str(lab.inis[name]), "status", code=5)
        last = text.strip().splitlines()[-1]
        assert said in last, (name, text)
        assert "Traceback" not in text
        assert "Fa1sch" not in text
        assert found_in(text) == []


@pytest.mark.long
def test_nothing_shows_a_password(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = closed.lab
    tmp = lab.base / "tmp"
    events = lab.base / "events"
    for place in (tmp, events):
        place.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp))
    port = free_port()
    spark = (
        "[spark]\nspark.master = local[2]\nspark.eventLog.enabled = true\n"
        f"spark.eventLog.dir = file://{events}\nspark.log.level = INFO\n"
        "spark.ui.enabled = true\nspark.eventLog.compress = false\n"
        f"spark.ui.port = {port}\n"
    )
    location = {"node_name": "src", "public_node_location": closed.root}
    lab.worker_ini("src", closed.root, location)
    location = {
        "node_name": "dst",
        "public_node_location": closed.leaf,
        "initial_provider_location": closed.root,
        "parallel_copies": "2",
    }
    lab.worker_ini("dst", closed.leaf, location, spark)
    base = with_params(closed.root, dbname=None)
    lab.ticker_ini("root", {"base_connstr": base, "database_list": "shop"})
    for connstr in (closed.root, closed.leaf):
        with vdb.connect(connstr, autocommit=True) as db:
            db.execute(TABLES)
    with vdb.connect(closed.root, autocommit=True) as db:
        db.execute("insert into orders select i, 'n' || i from generate_series(1, 5000) i")
        db.execute("insert into lines select i, i, i from generate_series(1, 5000) i")

    watch = Watch(closed.root, closed.leaf)
    try:
        closed.londiste("src", "create-root")
        closed.londiste("dst", "create-leaf")
        closed.run("pgqd", "-v", "-v", "-d", str(lab.inis["pgqd"]))
        for ini in ("src", "dst"):
            closed.run("londiste3", "-v", "-v", "-d", str(lab.inis[ini]), "worker")
        closed.londiste("src", "add-table", "orders", "lines")
        closed.londiste("dst", "add-table", "orders", "lines")
        closed.londiste("dst", "wait-sync")
        with vdb.connect(closed.root, autocommit=True) as db:
            db.execute("update orders set note = note || '!'")
            db.execute("delete from lines where id % 3 = 0")
        closed.londiste("dst", "wait-root")
        pages = "\n".join(spark_pages(port))
        heard = listeners(port)
        for words in (["status"], ["members"], ["node-info"], ["tables"], ["doctor"], ["compare"]):
            closed.londiste("dst", *words, code=None if words == ["doctor"] else 0)
        with vdb.connect(closed.root) as root, vdb.connect(closed.leaf) as leaf:
            for table in ("orders", "lines"):
                assert content(root, table, "true") == content(leaf, table, "true")
    finally:
        watch.close()
    # now with the root's server away: errors name where they failed
    lab.servers["root"].stop()
    for words in (["status"], ["wait-root"], ["add-table", "x"], ["compare"]):
        closed.londiste("dst", *words, code=None)
    lab.wait(lambda: "refused" in lab.log_text("dst"), "the worker's complaint", 120.0)
    for ini in ("dst", "src", "pgqd"):
        lab.stop_daemon(ini)

    assert watch.leaks == set()
    assert watch.plain == set()
    assert "vedur task" in watch.names and any(n.startswith("vedur copy ") for n in watch.names), (
        watch.names
    )
    assert [t for t in closed.said if found_in(t)] == []
    assert "orders" in pages and found_in(pages) == []
    assert heard == {"127.0.0.1"}
    assert list(events.iterdir()), "Spark wrote no event log"
    kept = {*lab.inis.values(), closed.passfile}
    assert showing(lab.base, kept) == []


def spark_pages(port: int) -> Iterator[str]:
    """Spark's own pages and its REST interface."""
    base = f"http://127.0.0.1:{port}"
    paths = ["/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/"]
    application = json.loads(get(f"{base}/api/v1/applications"))[0]["id"]
    api = f"/api/v1/applications/{application}"
    paths += [f"{api}/{name}" for name in ("jobs", "stages", "environment", "allexecutors", "sql")]
    paths += [f"/jobs/job/?id={number}" for number in range(3)]
    for path in paths:
        yield get(base + path)


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode(errors="replace"))


def listeners(port: int) -> set[str]:
    """The addresses on which somebody listens at a port."""
    found = set()
    for name, width in (("tcp", 8), ("tcp6", 32)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == "0A" and int(number, 16) == port:
                # Java opens a socket of IPv6 for an address of IPv4: the last word counts
                last = address[width - 8 :]
                numbers = [int(last[i : i + 2], 16) for i in (6, 4, 2, 0)]
                found.add(".".join(map(str, numbers)))
    return found


def showing(base: Path, kept: set[Path]) -> list[str]:
    """Files that hold a secret, but for those that may, and for the servers' own data."""
    found = []
    for path in base.rglob("*"):
        inside = path.relative_to(base).parts
        if path in kept or (inside[0] in ("root", "leaf") and "data" in inside):
            continue
        if path.is_file() and found_in(path.read_bytes()):
            lines = [x for x in path.read_text(errors="replace").splitlines() if found_in(x)]
            found.append(f"{path}: {re.sub('|'.join(WORDS), 'SECRET', lines[0])[:300]}")
    return found
