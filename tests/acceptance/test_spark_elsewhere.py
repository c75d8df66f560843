"""A worker whose Spark is not in its own process: executors, a cluster, and Spark Connect.

First copy and replay through the installed commands, contents compared; with handlers, too, whose
functions run where the executors are.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from tests.fixtures.wants import wanting
from vedur import db as vdb
from vedur.demo.lab import Lab
from vedur.demo.story import content

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT, LEAF = "src", "dst"
#: Where the module of a transform is, for commands and workers: not for executors.
EXAMPLES = Path(__file__).parents[2] / "examples" / "handlers"
#: What executors have under its name: an older version, which hides nothing.
OLDER = "def hide(batch):\n    return batch\n"
TABLES = ("shop.orders", "shop.lines")
SCHEMA = (
    "create table shop.orders (id int primary key, note text, price numeric);"
    "create table shop.lines (id int primary key, order_id int, at timestamptz default now());"
    "create table shop.people (id int primary key, name text, note text);"
    "create table shop.cards (id int primary key, mail text);"
    "create table shop.visits (id int primary key, at timestamp not null)"
)
#: The handlers of some more tables, and their arguments.
HANDLERS = {
    "shop.people": ("--handler=obfuscate",),
    "shop.cards": ("--transform=mask_mail:hide",),
    "shop.visits": ("--handler=monthly_field", "--handler-arg=part_field=at"),
}
RULES = {"shop.people": {"id": "keep", "name": "hash", "note": "keep"}}
FILL = (
    "insert into shop.orders select i, 'note ' || i, i / 7.0 from generate_series(1, 20000) i;"
    "insert into shop.lines select i, 1 + i % 20000 from generate_series(1, 50000) i;"
    "insert into shop.people select i, 'planted ' || i, 'n' from generate_series(1, 2000) i;"
    "insert into shop.cards select i, 'planted' || i || '@x.is' from generate_series(1, 2000) i;"
    "insert into shop.visits select i, timestamp '2026-01-01' + i * interval '1 hour'"
    " from generate_series(1, 2000) i"
)
CHANGES = (
    "update shop.orders set note = 'new' || id, price = price * 2 where id % 3 = 0;"
    "delete from shop.lines where id % 5 = 0;"
    "insert into shop.lines select i, i from generate_series(60001, 61000) i;"
    "update shop.people set name = 'planted anew', note = 'm' where id % 4 = 0;"
    "update shop.cards set mail = 'planted@new.is' where id % 4 = 0;"
    "update shop.visits set at = at + interval '1 year' where id % 4 = 0;"
    "delete from shop.people where id % 7 = 0; delete from shop.visits where id % 7 = 0"
)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    lab = Lab(new_place("vedur-lab-"))
    try:
        lab.server("root", VERSIONS[min(VERSIONS)])
        lab.server("leaf", VERSIONS[max(VERSIONS)])
        for side in ("root", "leaf"):
            lab.database(side, "shop", "shop")
            lab.psql(side, "shop", SCHEMA, user="shop")
        lab.psql("root", "shop", FILL, user="shop")
        yield lab
    finally:
        print(lab.log_text(LEAF)[-20_000:])
        lab.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Where executors look for modules."""
    place = tmp_path / "modules"
    place.mkdir()
    (place / "mask_mail.py").write_text(OLDER)
    return place


@pytest.fixture
def connect_server(tmp_path: Path, lab: Lab, elsewhere: Path) -> Iterator[str]:
    """A Spark Connect server of its own; the address for spark.remote."""
    pytest.importorskip("grpc", reason=wanting("grpcio"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    log = (tmp_path / "connect.log").open("w")
    process = subprocess.Popen(
        [
            str(home / "sbin" / "start-connect-server.sh"), "--master", "local[2]",
            "--conf", f"spark.connect.grpc.binding.port={port}",
            "--conf", "spark.driver.host=127.0.0.1",
            "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.ui.enabled=false",
        ],
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOG_DIR": str(tmp_path),
            "SPARK_PID_DIR": str(tmp_path),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(elsewhere),
        },
        stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        Lab(base=tmp_path).wait(lambda: _listens(port), "Spark Connect to listen", 300.0)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        log.close()


@pytest.fixture
def cluster(tmp_path: Path, lab: Lab, elsewhere: Path) -> Iterator[str]:
    """A standalone cluster: a master and two workers in processes of their own; its address. It has
    cores for a second application: compare of masked tables is one beside the worker's."""
    home = Path(pyspark.__file__).parent
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    port, page = ports
    address = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(elsewhere),
    }
    master = [
        "master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(page),
    ]
    worker = ["worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "2g",
              "--webui-port", "0", address]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, words: list[str]) -> Path:
        log = tmp_path / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}"]
        with log.open("w") as out:
            started.append(
                subprocess.Popen(
                    [*command, *words[1:]],
                    env=environment,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )
        return log

    waiting = Lab(base=tmp_path)
    try:
        start("master", master)
        waiting.wait(lambda: _listens(port), "the master to listen", 300.0)
        logs = [start(f"worker{number}", worker) for number in (1, 2)]
        said = "Successfully registered with master"
        waiting.wait(lambda: all(said in log.read_text() for log in logs), "workers", 300.0)
        yield address
        wrote = [path for path in tmp_path.glob("app-*/*/std*") if path.is_file()]
        assert any(path.stat().st_size for path in wrote)  # executors have run there
        assert not [path for path in wrote if b"planted" in path.read_bytes()]
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def copy_and_replay(lab: Lab, spark: str) -> None:
    """Copy tables, replay changes and a script, compare."""
    root, leaf = (lab.servers[side].connstr("shop") for side in ("root", "leaf"))
    rules = lab.base / "rules.json"
    rules.write_text(json.dumps(RULES))
    lab.worker_ini(ROOT, root)
    masks = {"obfuscator_map": str(rules), "obfuscator_key": "correct horse battery staple"}
    lab.worker_ini(LEAF, leaf, masks, f"[spark]\n{spark}\n")
    lab.ticker_ini("root")
    lab.londiste(ROOT, "create-root", ROOT, root)
    lab.londiste(LEAF, "create-leaf", LEAF, leaf, f"--provider={root}")
    lab.start_ticker()
    lab.start_worker(ROOT)
    lab.start_worker(LEAF)
    lab.londiste(ROOT, "add-table", *TABLES, *HANDLERS)
    lab.londiste(LEAF, "add-table", *TABLES)
    for table, handler in HANDLERS.items():
        lab.londiste(LEAF, "add-table", table, *handler)
    lab.londiste(LEAF, "wait-sync", timeout=240)
    lab.psql("root", "shop", CHANGES, user="shop")
    lab.londiste(LEAF, "wait-root", timeout=240)
    with vdb.connect(root) as here, vdb.connect(leaf) as there:
        for table in TABLES:
            want = content(here, table, "true")
            assert want[0] > 20_000 - 1
            assert content(there, table, "true") == want, table
        visits = "select count(*), md5(string_agg(v::text, ',' order by id)) from shop.visits v"
        assert there.one(visits) == here.one(visits)
        assert there.value("select count(*) from only shop.visits") == 0
        assert there.value("select count(distinct tableoid) from shop.visits") > 4
        for table, column in (("shop.people", "name"), ("shop.cards", "mail")):
            rows = f"select count(*) from {table}"
            assert there.value(rows) == here.value(rows)
            assert there.value(f"{rows} where {column} like 'planted%'") == 0
    said = lab.log_text(LEAF)
    assert "crashed" not in said and "failed" not in said
    compared = lab.londiste(LEAF, "compare", timeout=240)
    assert compared.returncode == 0
    lab.stop_daemon(LEAF)


def test_executors_of_their_own(lab: Lab, elsewhere: Path) -> None:
    copy_and_replay(
        lab,
        "spark.master = local-cluster[2,1,1024]\nspark.executor.memory = 512m\n"
        f"spark.cores.max = 2\nspark.executorEnv.PYTHONPATH = {elsewhere}",
    )


def test_spark_connect(lab: Lab, connect_server: str) -> None:
    copy_and_replay(lab, f"spark.remote = {connect_server}")


def test_a_standalone_cluster(lab: Lab, cluster: str) -> None:
    copy_and_replay(
        lab, f"spark.master = {cluster}\nspark.executor.memory = 512m\nspark.cores.max = 2"
    )
