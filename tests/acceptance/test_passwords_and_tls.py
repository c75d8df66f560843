"""Every connection needs TLS, a certificate and a password, and nothing shows the password.

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

from tests.fixtures.place import new_place
from tests.fixtures.tls import make_authority, make_certificate, require_tls, secret_file
from tests.fixtures.wants import wanting
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
    pytest.mark.skipif(DEBIAN is None, reason=wanting("PostgreSQL 15")),
]

#: Each has a part that stays the same however the rest is quoted or encoded.
WORDS = ("Wurze1geheim", "B1attgeheim")
ROOT_SECRET, LEAF_SECRET = f"{WORDS[0]} '%\\x", f"{WORDS[1]}%&x"
TABLES = (
    "create table orders (id int primary key, note text);"
    "create table lines (id int primary key, order_id int references orders, n int)"
)
#: A line of a server's log for each connection, with what protects it.
OPENED = re.compile(
    r"connection authorized: user=(\S+) .*?application_name=(.*?)( SSL enabled .*)?$"
)


def found_in(text: str | bytes) -> list[str]:
    """The secrets that a text shows."""
    raw = text.encode() if isinstance(text, str) else text
    return [word for word in WORDS if word.encode() in raw]


class Watch:
    """Looks at all processes until it is closed."""

    def __init__(self) -> None:
        self.leaks: set[str] = set()
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

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class Closed:
    """A lab whose servers ask for TLS, certificates and passwords; what its commands have said."""

    def __init__(self, lab: Lab) -> None:
        assert DEBIAN is not None
        self.lab = lab
        self.said: list[str] = []
        self.authority = make_authority(lab.base / "tls")
        for path in (lab.base / "tls", self.authority):
            path.chmod(0o755)
        self.certificate = make_certificate(
            self.authority, lab.base / "tls" / "replicator", "replicator"
        )
        for side, secret in (("root", ROOT_SECRET), ("leaf", LEAF_SECRET)):
            server = lab.server(side, DEBIAN, log_connections="on")
            with vdb.connect(server.connstr(), autocommit=True) as db:
                db.execute("create role replicator login")
                db.execute("create database shop owner replicator")
                db.execute("grant set on parameter session_replication_role to replicator")
            roles = {"replicator": secret, "postgres": secret}
            require_tls(server, self.authority, roles)
            server.logfile.write_text("")  # what came before had no lock yet
        leaf = lab.servers["leaf"]
        self.passfile = secret_file(
            lab.base / "passfile", f"127.0.0.1:{leaf.port}:*:replicator:{LEAF_SECRET}\n"
        )

    def connstr(self, side: str, **more: str) -> str:
        """Without a password."""
        base = self.lab.servers[side].connstr("shop", "replicator")
        cert, key = map(str, self.certificate)
        strict = {"sslmode": "verify-full", "sslrootcert": str(self.authority)}
        strict |= {"sslcert": cert, "sslkey": key}
        return with_params(base, **strict, **more)

    @property
    def root(self) -> str:
        return self.connstr("root", password=ROOT_SECRET)

    @property
    def leaf(self) -> str:
        return self.connstr("leaf", passfile=str(self.passfile))

    def opened(self) -> Iterator[tuple[str, str, bool]]:
        """Every connection that was let in: role, program, whether by TLS."""
        for server in self.lab.servers.values():
            for line in server.logfile.read_text(errors="replace").splitlines():
                if found := OPENED.search(line):
                    yield found[1], found[2], found[3] is not None

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
    lab = Lab(new_place("vedur-lab-"))
    try:
        yield Closed(lab)
    finally:
        lab.close()


@pytest.mark.draw("programs")
def test_only_the_right_authority_and_password_open(closed: Closed) -> None:
    """The laboratory itself: each lock is really locked, and the refusal is one line."""
    lab = closed.lab
    stranger = make_authority(lab.base / "tls", "stranger")
    cert, key = map(str, make_certificate(closed.authority, lab.base / "tls" / "other", "other"))
    false, its = map(str, make_certificate(stranger, lab.base / "tls" / "false", "replicator"))
    nowhere = str(lab.base / "nowhere")
    ways = {
        "plain": (with_params(closed.root, sslmode="disable"), "reject"),
        "stranger": (with_params(closed.root, sslrootcert=str(stranger)), "certificate verify"),
        "no certificate": (
            with_params(closed.root, sslcert=nowhere, sslkey=None),
            "connection requires a valid client certificate",
        ),
        # the server's log has the reason; the password is right
        "another's": (
            with_params(closed.root, sslcert=cert, sslkey=key),
            "password authentication failed",
        ),
        "forged": (with_params(closed.root, sslcert=false, sslkey=its), "unknown ca"),
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


class Life:
    """From create-root to replay in the closed lab, with Spark's pages and event log on."""

    def __init__(self, closed: Closed, rows: int) -> None:
        self.closed, self.lab = closed, closed.lab
        self.events = self.lab.base / "events"
        self.events.mkdir()
        self.port = free_port()
        spark = (
            "[spark]\nspark.master = local[2]\nspark.eventLog.enabled = true\n"
            f"spark.eventLog.dir = file://{self.events}\nspark.log.level = INFO\n"
            "spark.ui.enabled = true\nspark.eventLog.compress = false\n"
            f"spark.ui.port = {self.port}\n"
        )
        location = {"node_name": "src", "public_node_location": closed.root}
        self.lab.worker_ini("src", closed.root, location)
        location = {
            "node_name": "dst",
            "public_node_location": closed.leaf,
            "initial_provider_location": closed.root,
            "parallel_copies": "2",
        }
        self.lab.worker_ini("dst", closed.leaf, location, spark)
        base = with_params(closed.root, dbname=None)
        self.lab.ticker_ini("root", {"base_connstr": base, "database_list": "shop"})
        for connstr in (closed.root, closed.leaf):
            with vdb.connect(connstr, autocommit=True) as db:
                db.execute(TABLES)
        with vdb.connect(closed.root, autocommit=True) as db:
            db.execute(f"insert into orders select i, 'n' || i from generate_series(1, {rows}) i")
            db.execute(f"insert into lines select i, i, i from generate_series(1, {rows}) i")
        self.watch = Watch()
        self.pages = ""
        self.heard: set[str] = set()

    def begin(self) -> None:
        """Nodes, ticker, workers, first copies, changes."""
        closed, lab = self.closed, self.lab
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
        self.pages = "\n".join(spark_pages(self.port))
        self.heard = listeners(self.port)

    def same(self) -> None:
        with vdb.connect(self.closed.root) as root, vdb.connect(self.closed.leaf) as leaf:
            for table in ("orders", "lines"):
                assert content(root, table, "true") == content(leaf, table, "true")

    def verdict(self) -> None:
        """After all daemons have ended and written what they write."""
        assert self.watch.leaks == set()
        opened = list(self.closed.opened())
        assert {x for x in opened if x[0] != "replicator" or not x[2]} == set()
        names = {name for _, name, _ in opened}
        assert "vedur task" in names, names
        assert any(n.startswith("vedur copy ") for n in names), names
        assert [t for t in self.closed.said if found_in(t)] == []
        assert "orders" in self.pages and found_in(self.pages) == []
        assert self.heard == {"127.0.0.1"}
        assert list(self.events.iterdir()), "Spark wrote no event log"
        kept = {*self.lab.inis.values(), self.closed.passfile}
        assert showing(self.lab.base, kept) == []


@pytest.fixture
def tmp(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of all commands lie where secrets are looked for."""
    place = closed.lab.base / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))


@pytest.mark.draw("programs")
@pytest.mark.usefixtures("tmp")
def test_nothing_shows_a_password(closed: Closed) -> None:
    life = Life(closed, 500)
    try:
        life.begin()
        for words in (["status"], ["members"], ["node-info"]):
            closed.londiste("dst", *words)
        life.same()
    finally:
        life.watch.close()
    closed.lab.servers["root"].stop()
    closed.londiste("dst", "status", code=None)
    for ini in ("dst", "src", "pgqd"):
        closed.lab.stop_daemon(ini)
    life.verdict()


@pytest.mark.long
@pytest.mark.usefixtures("tmp")
def test_nothing_shows_a_password_in_more_commands_and_in_an_outage(closed: Closed) -> None:
    lab, life = closed.lab, Life(closed, 5000)
    try:
        life.begin()
        for words in (["status"], ["members"], ["node-info"], ["tables"], ["doctor"], ["compare"]):
            closed.londiste("dst", *words, code=None if words == ["doctor"] else 0)
        life.same()
    finally:
        life.watch.close()
    # now with the root's server away: errors name where they failed
    lab.servers["root"].stop()
    for words in (["status"], ["wait-root"], ["add-table", "x"], ["compare"]):
        closed.londiste("dst", *words, code=None)
    lab.wait(lambda: "refused" in lab.log_text("dst"), "the worker's complaint", 120.0)
    for ini in ("dst", "src", "pgqd"):
        lab.stop_daemon(ini)
    life.verdict()


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
