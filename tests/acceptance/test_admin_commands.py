"""The walk-through's administrative part by subprocess: same command lines, same output.

No worker and no ticker run; what they do is the matter of the other acceptance tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur.demo.lab import Lab, sql_text
from vedur.demo.story import KEYS, LEAF, OWNER, ROOT

LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ ([A-Z]+) (.*)$")


def talk(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The log lines without time and pid; anything else on stderr fails."""
    found = []
    for line in done.stderr.splitlines():
        match = LINE.match(line)
        assert match, f"not a log line: {line!r}"
        found.append(f"{match[1]} {match[2]}")
    return found


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        lab.server("root", VERSIONS[min(VERSIONS)])
        lab.server("leaf", VERSIONS[max(VERSIONS)])
        for side in ("root", "leaf"):
            lab.database(side, "digoal_01", OWNER)
            lab.psql(side, "digoal_01", sql_text("schema.sql"), user=OWNER)
        yield lab
    finally:
        lab.close()


def connstr(lab: Lab, side: str) -> str:
    return lab.servers[side].connstr("digoal_01") + " password=sekrit"


@pytest.mark.draw("programs")
def test_set_up_as_in_the_walk_through(lab: Lab) -> None:
    root, leaf = connstr(lab, "root"), connstr(lab, "leaf")
    for name, location in ((ROOT, root), (LEAF, leaf)):
        lab.worker_ini(name, location).chmod(0o600)
    done = lab.londiste(ROOT, "create-root", ROOT, root)
    assert talk(done)[-4:] == [
        "INFO Initializing node",
        "INFO Location registered",
        f'INFO Node "{ROOT}" initialized for queue "replika" with type "root"',
        "INFO Done",
    ]
    done = lab.run(
        "londiste3", "-v", str(lab.inis[LEAF]), "create-leaf", LEAF, leaf, f"--provider={root}"
    )
    lines = talk(done)
    assert lines[0].startswith("DEBUG Connect 'new_node' to 'host=")
    assert lines[0].endswith(" [...]'")
    shown = [line for line in lines if "exec_cmd" in line or "exec_query" in line]
    location = leaf.replace("sekrit", "***")
    register = f"DEBUG exec_cmd: select * from pgq_node.register_location('replika', '{LEAF}', "
    assert shown.count(f"{register}'{location}', false)") == 3
    assert (
        f"DEBUG exec_cmd: select * from pgq_node.register_subscriber('replika', '{LEAF}', "
        f"'{LEAF}', null)" in shown
    )
    assert shown[-1] == (
        f"DEBUG exec_cmd: select * from pgq_node.create_node('replika', 'leaf', '{LEAF}', "
        f"'{LEAF}', '{ROOT}', '1', null)"
    )
    assert lines[-2:] == [
        f'INFO Node "{LEAF}" initialized for queue "replika" with type "leaf"',
        "INFO Done",
    ]
    assert "sekrit" not in done.stderr

    status = lab.londiste(ROOT, "status").stdout.splitlines()
    assert status[:4] == [
        f"Queue: replika   Local node: {ROOT}",
        "",
        f"{ROOT} (root)",
        "  |                           Tables: 0/0/0",
    ]
    assert status[5] == f"  +--{LEAF} (leaf)"

    members = lab.londiste(ROOT, "members").stdout
    assert "sekrit" not in members
    first, header, dashes, *rows = members.splitlines()
    assert first == f"Member info on {ROOT}@replika:"
    assert header == "node_name        dead             node_location"
    assert dashes.startswith("---------------  ---------------  ----")
    assert rows[0].startswith(f"{LEAF}   False            host=")

    keyed = [f"{OWNER}.user_info", f"{OWNER}.user_session"]
    added = [f"INFO Table added: {name}" for name in keyed]
    done = lab.run("londiste3", "-v", str(lab.inis[ROOT]), "add-table", *keyed)
    lines = talk(done)
    assert lines[1:5] == [
        "DEBUG exec_query: select * from pgq_node.get_node_info('replika')",
        "DEBUG exec_query: select * from pgq_node.get_queue_locations('replika')",
        "DEBUG exec_cmd: select * from pgq_node.get_node_info('replika')",
        "DEBUG 100 Ok",
    ]
    assert [line for line in lines if line.startswith("INFO")] == added
    assert (
        f"DEBUG exec_cmd: select * from londiste.local_add_table('replika', '{keyed[0]}', "
        "'[]', null, null)" in lines
    )
    assert talk(lab.londiste(LEAF, "add-table", *keyed)) == added

    assert lab.londiste(ROOT, "tables").stdout.splitlines() == [
        "Tables on node",
        "table_name              merge_state      table_attrs",
        "----------------------  ---------------  ---------------",
        "digoal_01.user_info     ok               ",
        "digoal_01.user_session  ok               ",
        "",
        "",
    ]
    assert lab.londiste(ROOT, "seqs").stdout == ""
    logs = [f"{OWNER}.user_login_rec", f"{OWNER}.user_logout_rec"]
    assert lab.londiste(ROOT, "missing").stdout.splitlines()[:5] == [
        "Missing objects on node",
        "obj_kind         obj_name",
        "---------------  -------------------------",
        *(f"r                {name}" for name in logs),
    ]
    refused = lab.londiste(ROOT, "add-table", *logs, check=False)
    assert refused.returncode == 1
    assert talk(refused) == [f"ERROR Primary key missing on table: {logs[0]}"]
    for side in ("root", "leaf"):
        for table in ("user_login_rec", "user_logout_rec"):
            lab.psql(side, "digoal_01", KEYS.format(table), user=OWNER)
    added = [f"INFO Table added: {name}" for name in logs]
    assert talk(lab.londiste(ROOT, "add-table", *logs)) == added
    assert talk(lab.londiste(LEAF, "add-table", *logs)) == added
    seqs = [f"{OWNER}.user_login_rec_id_seq", f"{OWNER}.user_logout_rec_id_seq"]
    assert lab.londiste(ROOT, "missing").stdout.splitlines()[3:5] == [
        f"S                {name}" for name in seqs
    ]
    added = [f"INFO Sequence added: {name}" for name in seqs]
    assert talk(lab.londiste(ROOT, "add-seq", *seqs)) == added
    assert talk(lab.londiste(LEAF, "add-seq", *seqs)) == added
    assert lab.londiste(LEAF, "seqs").stdout.splitlines()[:5] == [
        "Sequences on node",
        "seq_name                          local            last_value",
        "--------------------------------  ---------------  ---------------",
        f"{seqs[0]}   True             30001",
        f"{seqs[1]}  True             30001",
    ]
    assert lab.londiste(ROOT, "missing").stdout == ""

    listed = json.loads(lab.londiste(LEAF, "tables", "--json").stdout)
    assert [row["table_name"] for row in listed] == sorted([*keyed, *logs])
    status = json.loads(lab.londiste(LEAF, "status", "--json").stdout)
    assert {node["name"] for node in status["nodes"]} == {ROOT, LEAF}
    assert lab.londiste(LEAF, "check").stdout == ""

    for command in ("status", "members", "node-info", "node-status", "tables", "fkeys"):
        for more in ([], ["--json"]):
            done = lab.run("londiste3", "-v", str(lab.inis[LEAF]), command, *more)
            assert "sekrit" not in done.stdout + done.stderr, command
            if more:
                json.loads(done.stdout)
    assert "sekrit" not in lab.log_text(LEAF) + lab.log_text(ROOT)


def test_errors_are_one_line(lab: Lab) -> None:
    ini = lab.worker_ini("nowhere", "host=127.0.0.1 port=1 dbname=x password=sekrit")
    ini.chmod(0o600)
    done = lab.londiste("nowhere", "tables", check=False)
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1
    assert "refused" in done.stderr and "sekrit" not in done.stderr
    verbose = lab.run("londiste3", "-v", str(ini), "tables", check=False)
    assert "Traceback" in verbose.stderr
    assert "sekrit" not in verbose.stderr


def test_status_loads_nothing_heavy(lab: Lab) -> None:
    lab.worker_ini("quick", lab.servers["root"].connstr("digoal_01"))
    code = (
        "import sys\n"
        "from vedur.cli.main import main\n"
        f"assert main('londiste3', [{str(lab.inis['quick'])!r}, 'status']) in (0, 3)\n"
        "heavy = [m for m in ('pyspark', 'pandas', 'pyarrow') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_no_administrative_command_loads_spark(lab: Lab) -> None:
    """One after the other in one process, so the last look is about all of them."""
    # a root of its own: tests come in any order
    lab.database("root", "light", OWNER)
    place = lab.servers["root"].connstr("light")
    lab.worker_ini("light", place)
    lab.londiste("light", "create-root", "light", place)
    script = lab.base / "nothing.sql"
    script.write_text("select 1;\n")
    commands = [
        ["add-table", "nosuch.table"],
        ["members"],
        ["execute", str(script)],
        ["tables"],
        ["seqs"],
        ["missing"],
    ]
    code = (
        "import sys\n"
        "from vedur.cli.main import main\n"
        f"for words in {commands!r}:\n"
        f"    print(words[0], main('londiste3', [{str(lab.inis['light'])!r}, *words]))\n"
        "heavy = [m for m in ('pyspark', 'pandas', 'pyarrow') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = dict(line.split(" ") for line in done.stdout.splitlines() if line.count(" ") == 1)
    assert {name: results.get(name) for name in ("members", "execute", "tables", "seqs")} == (
        dict.fromkeys(("members", "execute", "tables", "seqs"), "0")
    )
    assert results["add-table"] != "0"
