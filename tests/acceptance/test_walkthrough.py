"""The DBA's walk-through, command by command, against servers of two major versions.

Seven stages: set-up and first copy under load; compare after load; the subscriber's database
stopped during load; TRUNCATE; all daemons stopped during load; a second leaf, renamed and
filtered; a column added by script. Output is compared with what the walk-through shows (times,
pids, paths, lags and ticks aside), and the data of both sides after each stage.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab, sql_text
from vedur.demo.story import KEYS, LEAF, OWNER, PART, PART_OWNER, ROOT, SEQS, TABLES, content

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

#: An ini for compare alone, as the walk-through writes it.
PART_COMPARE = f"{PART}_compare"
USERS = 200_000
SECONDS = 6
LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ ([A-Z]+) (.*)$")


def talk(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The log lines of a command without time and pid: `INFO Table added: x`."""
    found = []
    for line in done.stderr.splitlines():
        match = LINE.match(line)
        assert match, f"not a log line: {line!r}"
        found.append(f"{match[1]} {match[2]}")
    return found


class Walk:
    """The laboratory of this walk, and what the stages share."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.root = lab.servers["root"].connstr("digoal_01")
        self.leaf = lab.servers["leaf"].connstr("digoal_01")
        self.part = lab.servers["leaf"].connstr("digoal_02")

    def load(
        self, *more: str, seconds: int = SECONDS, users: int = USERS
    ) -> list[subprocess.Popen[str]]:
        return [
            self.lab.pgbench(
                "root", "digoal_01", script, "-T", str(seconds), *more, user=OWNER, users=users
            )
            for script in ("login.sql", "logout.sql")
        ]

    def load_until_stopped(self) -> list[subprocess.Popen[str]]:
        """For commands that must meet the load however long they take; not all the machine."""
        return self.load("-R", "200", seconds=600)

    def stop(self, running: list[subprocess.Popen[str]]) -> None:
        """It was still running, so what happened meanwhile happened under load."""
        assert [process.poll() for process in running] == [None] * len(running)
        for process in running:
            process.terminate()
            process.communicate(timeout=60)

    def finish(self, running: list[subprocess.Popen[str]]) -> None:
        for process in running:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output

    def caught_up(self, ini: str = LEAF) -> None:
        self.lab.londiste(ini, "wait-root", timeout=240)

    def assert_equal(self) -> None:
        with vdb.connect(self.root) as root, vdb.connect(self.leaf) as leaf:
            for table in TABLES:
                name = f"{OWNER}.{table}"
                assert content(root, name, "true") == content(leaf, name, "true"), name

    def assert_part_equal(self) -> None:
        with vdb.connect(self.root) as root, vdb.connect(self.part) as part:
            for table in TABLES[:2]:
                want = content(root, f"{OWNER}.{table}", "userid<1000")
                assert content(part, f"{PART_OWNER}.{table}1", "true") == want, table


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        lab.server("root", VERSIONS[min(VERSIONS)])
        lab.server("leaf", VERSIONS[max(VERSIONS)])
        for side in ("root", "leaf"):
            lab.database(side, "digoal_01", OWNER)
            lab.psql(side, "digoal_01", sql_text("schema.sql"), user=OWNER)
        lab.psql("root", "digoal_01", sql_text("users.sql"), user=OWNER, users=str(USERS))
        yield Walk(lab)
    finally:
        lab.close()


def test_walkthrough(walk: Walk, tmp_path: Path) -> None:
    stage1_set_up_and_copy_under_load(walk)
    stage2_compare_after_load(walk)
    stage3_subscriber_database_stopped(walk)
    stage4_truncate(walk)
    stage5_all_daemons_stopped(walk)
    stage6_second_leaf(walk)
    stage7_add_column(walk, tmp_path)


def stage1_set_up_and_copy_under_load(walk: Walk) -> None:
    lab = walk.lab
    lab.worker_ini(ROOT, walk.root)
    lab.worker_ini(LEAF, walk.leaf)
    lab.ticker_ini("root")

    done = lab.londiste(ROOT, "create-root", ROOT, walk.root)
    lines = talk(done)
    assert lines[0] == "INFO plpgsql is installed"
    assert lines[-4:] == [
        "INFO Initializing node",
        "INFO Location registered",
        f'INFO Node "{ROOT}" initialized for queue "replika" with type "root"',
        "INFO Done",
    ]
    done = lab.londiste(LEAF, "create-leaf", LEAF, walk.leaf, f"--provider={walk.root}")
    lines = talk(done)
    assert "INFO Installing londiste" in lines
    assert lines[-8:] == [
        "INFO Initializing node",
        "INFO Location registered",
        "INFO Location registered",
        f"INFO Subscriber registered: {LEAF}",
        "INFO Location registered",
        "INFO Location registered",
        f'INFO Node "{LEAF}" initialized for queue "replika" with type "leaf"',
        "INFO Done",
    ]

    started = lab.run("londiste3", "-d", str(lab.inis[ROOT]), "worker")
    assert (started.stdout, started.stderr) == ("", "")
    started = lab.run("londiste3", "-d", str(lab.inis[LEAF]), "worker")
    assert (started.stdout, started.stderr) == ("", "")
    ticker = lab.run("pgqd", "-d", str(lab.inis["pgqd"]))
    assert re.search(r"\d \d+ LOG Starting pgqd \S+", ticker.stdout + ticker.stderr)

    status = lab.londiste(ROOT, "status").stdout.splitlines()
    assert status[0] == f"Queue: replika   Local node: {ROOT}"
    tree = [line for line in status[1:] if line.strip()]
    assert tree[0] == f"{ROOT} (root)"
    assert tree[1] == "  |                           Tables: 0/0/0"
    assert re.fullmatch(r"  \|                           Lag: \S+, Tick: \d+", tree[2])
    assert tree[3] == f"  +--{LEAF} (leaf)"
    assert tree[4] == "                              Tables: 0/0/0"

    members = lab.londiste(ROOT, "members").stdout.splitlines()
    assert members[0] == f"Member info on {ROOT}@replika:"
    assert members[1].split() == ["node_name", "dead", "node_location"]
    assert [line.split()[:2] for line in members[3:5]] == [[LEAF, "False"], [ROOT, "False"]]

    keyed = [f"{OWNER}.user_info", f"{OWNER}.user_session"]
    added = [f"INFO Table added: {name}" for name in keyed]
    load = walk.load_until_stopped()
    assert talk(lab.londiste(ROOT, "add-table", *keyed)) == added
    assert talk(lab.londiste(LEAF, "add-table", *keyed)) == added
    lab.londiste(LEAF, "wait-sync", timeout=240)
    # the log tables still have no key: their rows of now arrive with the copy
    walk.stop(load)

    tables = lab.londiste(ROOT, "tables").stdout.splitlines()
    assert tables[:3] == [
        "Tables on node",
        "table_name              merge_state      table_attrs",
        "----------------------  ---------------  ---------------",
    ]
    assert [line.split()[:2] for line in tables[3:5]] == [[name, "ok"] for name in keyed]
    assert lab.londiste(ROOT, "seqs").stdout == ""

    logs = [f"{OWNER}.user_login_rec", f"{OWNER}.user_logout_rec"]
    missing = lab.londiste(ROOT, "missing").stdout.splitlines()
    assert missing[0] == "Missing objects on node"
    assert missing[1] == "obj_kind         obj_name"
    assert [line.split() for line in missing[3:] if line] == [["r", name] for name in logs]

    refused = lab.londiste(ROOT, "add-table", *logs, check=False)
    assert refused.returncode == 1
    assert talk(refused) == [f"ERROR Primary key missing on table: {logs[0]}"]
    for side in ("root", "leaf"):
        for table in ("user_login_rec", "user_logout_rec"):
            lab.psql(side, "digoal_01", KEYS.format(table), user=OWNER)

    load = walk.load_until_stopped()
    added = [f"INFO Table added: {name}" for name in logs]
    assert talk(lab.londiste(ROOT, "add-table", *logs)) == added
    assert talk(lab.londiste(LEAF, "add-table", *logs)) == added
    seqs = [f"{OWNER}.{seq}" for seq in SEQS]
    missing = lab.londiste(ROOT, "missing").stdout.splitlines()
    assert [line.split() for line in missing[3:] if line] == [["S", name] for name in seqs]
    added = [f"INFO Sequence added: {name}" for name in seqs]
    assert talk(lab.londiste(ROOT, "add-seq", *seqs)) == added
    walk.caught_up()
    assert talk(lab.londiste(LEAF, "add-seq", *seqs)) == added

    with lab.inis[LEAF].open("a") as ini:
        ini.write("parallel_copies = 16\n")
    reloaded = lab.run("londiste3", "-r", str(lab.inis[LEAF]))
    assert (reloaded.stdout, reloaded.stderr) == ("", "")

    lab.londiste(LEAF, "wait-sync", timeout=240)
    walk.stop(load)
    tables = lab.londiste(LEAF, "tables").stdout.splitlines()
    names = sorted(f"{OWNER}.{t}" for t in TABLES)
    assert [line.split() for line in tables[3:] if line] == [[name, "ok"] for name in names]
    walk.caught_up()
    walk.assert_equal()

    seqs_seen = lab.londiste(LEAF, "seqs").stdout.splitlines()
    assert seqs_seen[0] == "Sequences on node"
    assert seqs_seen[1].split() == ["seq_name", "local", "last_value"]
    with vdb.connect(walk.root) as root, vdb.connect(walk.leaf) as leaf:
        for seq in seqs:
            real = root.value(f"select last_value from {seq}")
            assert leaf.value(f"select last_value from {seq}") > real


def _compared(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Table -> (source line, target line) of a compare; checks the shape of each line."""
    found: dict[str, tuple[str, str]] = {}
    *lines, last = [line for line in talk(done) if not line.startswith("WARNING")]
    assert last.startswith("INFO Compared ")
    for at in range(0, len(lines), 5):
        locking, syncing, counting, source, target = lines[at : at + 5]
        assert locking.startswith("INFO Locking ")
        name = counting.removeprefix("INFO Counting ")
        assert syncing == f"INFO Syncing {name}"
        assert source.startswith("INFO srcdb: ") and target.startswith("INFO dstdb: ")
        found[name] = (source.removeprefix("INFO srcdb: "), target.removeprefix("INFO dstdb: "))
    return found


def _assert_compare_equal(walk: Walk) -> dict[str, tuple[str, str]]:
    done = walk.lab.londiste(LEAF, "compare", timeout=240)
    found = _compared(done)
    assert set(found) == {f"{OWNER}.{t}" for t in TABLES}
    for name, (source, target) in found.items():
        assert source == target, name
        assert re.fullmatch(r"\d+ rows, checksum=(-?\d+|None)", source)
    return found


def stage2_compare_after_load(walk: Walk) -> None:
    walk.finish(walk.load())
    found = _assert_compare_equal(walk)
    assert found[f"{OWNER}.user_info"][0].startswith(f"{USERS} rows, checksum=")
    walk.caught_up()
    walk.assert_equal()


def stage3_subscriber_database_stopped(walk: Walk) -> None:
    lab = walk.lab
    lab.servers["leaf"].stop()
    load = walk.load()
    lab.wait(lambda: f"Job {LEAF} crashed: " in lab.log_text(LEAF), "the outage in the log", 60.0)
    status = lab.londiste(ROOT, "status").stdout
    assert re.search(rf"^{LEAF} \(dead\)$", status, re.MULTILINE), status
    assert re.search(rf"^ {{30}}ERR: {LEAF}: .*refused", status, re.MULTILINE), status
    refused = lab.londiste(LEAF, "status", check=False)
    assert refused.returncode == 5
    (line,) = talk(refused)
    assert line.startswith("ERROR ") and "refused" in line
    walk.finish(load)
    assert "refused" in lab.log_text(LEAF)
    assert "Traceback" not in lab.log_text(LEAF)
    lab.servers["leaf"].start()
    walk.caught_up()
    _assert_compare_equal(walk)
    walk.assert_equal()
    assert "ERR" not in lab.londiste(ROOT, "status").stdout


def stage4_truncate(walk: Walk) -> None:
    for table in ("user_login_rec", "user_logout_rec"):
        walk.lab.psql("root", "digoal_01", f"truncate {table}", user=OWNER)
    found = _assert_compare_equal(walk)
    assert found[f"{OWNER}.user_login_rec"] == ("0 rows, checksum=None",) * 2
    assert found[f"{OWNER}.user_logout_rec"] == ("0 rows, checksum=None",) * 2
    assert found[f"{OWNER}.user_info"][0].startswith(f"{USERS} rows, checksum=")
    walk.caught_up()
    walk.assert_equal()


def stage5_all_daemons_stopped(walk: Walk) -> None:
    lab = walk.lab
    stopped = lab.run("pgqd", "-s", str(lab.inis["pgqd"]))
    assert "SIGINT sent" in stopped.stdout + stopped.stderr
    for ini in (ROOT, LEAF):
        lab.stop_daemon(ini)
    lab.wait(lambda: not (lab.base / "pid" / "pgqd.pid").exists(), "pgqd to stop", 30.0)
    walk.finish(walk.load())
    lab.start_worker(ROOT)
    lab.start_worker(LEAF)
    lab.start_ticker()
    walk.caught_up()
    _assert_compare_equal(walk)
    walk.assert_equal()


def _compare_part(walk: Walk, ini: str) -> dict[str, tuple[str, str]]:
    """The second leaf with nothing said about its condition, or as the walk-through's author had
    to do it: with an ini of its own whose compare_sql has the condition."""
    lab = walk.lab
    if ini == PART_COMPARE:
        text = "select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only _TABLE_ t"
        more = {"parallel_copies": "16", "compare_sql": f"{text} where userid<1000"}
        lab.worker_ini(ini, walk.part, more)
    found = _compared(lab.londiste(ini, "compare", timeout=240))
    assert set(found) == {f"{PART_OWNER}.user_info1", f"{PART_OWNER}.user_session1"}
    for source, target in found.values():
        assert source == target
        assert source.startswith("999 rows, checksum=")
    return found


def stage6_second_leaf(walk: Walk) -> None:
    lab = walk.lab
    lab.database("leaf", "digoal_02", PART_OWNER)
    lab.psql("leaf", "digoal_02", sql_text("schema.sql"), user=PART_OWNER)
    for table in ("user_info", "user_session"):
        lab.psql("leaf", "digoal_02", f"alter table {table} rename to {table}1", user=PART_OWNER)
    lab.worker_ini(PART, walk.part, {"parallel_copies": "16"})
    lab.londiste(PART, "create-leaf", PART, walk.part, f"--provider={walk.root}")
    lab.start_worker(PART)
    for table in ("user_info", "user_session"):
        done = lab.londiste(
            PART,
            "add-table",
            f"--dest-table={PART_OWNER}.{table}1",
            "--copy-condition=userid<1000",
            f"{OWNER}.{table}",
        )
        want = f"INFO Table added: {OWNER}.{table}({PART_OWNER}.{table}1)"
        assert talk(done) == [want]
    lab.londiste(PART, "wait-sync", timeout=240)
    tables = lab.londiste(PART, "tables").stdout.splitlines()
    attrs = "{'copy_condition': 'userid<1000'}"
    want = [[f"{OWNER}.{t}", "ok", attrs] for t in ("user_info", "user_session")]
    assert [re.split(r"\s{2,}", line.strip()) for line in tables[3:] if line] == want
    walk.assert_part_equal()
    by_itself, by_ini = _compare_part(walk, PART), _compare_part(walk, PART_COMPARE)
    assert by_itself == by_ini
    # half of the changes belong to the part
    load = walk.load("-R", "200", seconds=600, users=2_000)
    _compare_part(walk, PART)
    _compare_part(walk, PART_COMPARE)
    walk.stop(load)
    for ini in (LEAF, PART):
        walk.caught_up(ini)
    assert _compare_part(walk, PART) == _compare_part(walk, PART_COMPARE)
    walk.assert_part_equal()
    walk.assert_equal()
    status = lab.londiste(PART, "status").stdout
    assert re.search(rf"\+--{PART} \(leaf\)\n\s+(\|\s+)?Tables: 2/0/2\n", status)


def stage7_add_column(walk: Walk, tmp_path: Path) -> None:
    lab = walk.lab
    script = tmp_path / "add_column.sql"
    script.write_text(
        "begin;\n"
        "alter table digoal_01.user_info add column c1 int;\n"
        "alter table digoal_01.user_session add column c1 int;\n"
        "end;\n"
    )
    assert talk(lab.londiste(ROOT, "execute", str(script))) == [
        "INFO Executing: add_column.sql",
        "INFO Execute finished: add_column.sql",
    ]
    refused = lab.londiste(LEAF, "execute", str(script), check=False)
    assert refused.returncode == 1
    assert talk(refused) == ["ERROR Node is not root node: replika"]
    text = "update digoal_01.user_info set c1 = userid where userid <= 5000"
    lab.psql("root", "digoal_01", text, user=OWNER)
    walk.caught_up()
    walk.assert_equal()
    walk.caught_up(PART)
    walk.assert_part_equal()
    assert "Execute finished: add_column.sql" in lab.log_text(LEAF)
    found = lab.psql("leaf", "digoal_01", "select max(c1) from digoal_01.user_info", user=OWNER)
    assert found == "5000"
