"""A consumer in C reads the queue of a branch like that of its root, and moves by position."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.pg import MakeDb
from tests.fixtures.wants import wanting
from tests.labs.cascade import Cascade
from vedur.db import Database

#: Reads all batches that are there, with the functions of PgQ alone; one line for an event, and one
#: for the tick to which a batch goes.
SOURCE = r"""
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

static PGresult *run(PGconn *db, const char *sql, int n, const char *const *values) {
    PGresult *found = PQexecParams(db, sql, n, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(found) != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s", PQerrorMessage(db));
        exit(1);
    }
    return found;
}

int main(int argc, char **argv) {
    PGconn *db = PQconnectdb(argv[1]);
    const char *who[] = {argv[2], argv[3]};
    for (;;) {
        PGresult *info =
            run(db, "select batch_id, cur_tick_id from pgq.next_batch_info($1, $2)", 2, who);
        if (PQntuples(info) == 0 || PQgetisnull(info, 0, 0))
            return 0;
        const char *batch[] = {PQgetvalue(info, 0, 0)};
        PGresult *events = run(db,
            "select ev_id, ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
            " from pgq.get_batch_events($1) order by ev_id", 1, batch);
        for (int row = 0; row < PQntuples(events); row++) {
            for (int at = 0; at < PQnfields(events); at++) {
                const char *null = PQgetisnull(events, row, at) ? "null" : "";
                printf("%s%s%c", null, PQgetvalue(events, row, at), 31);
            }
            printf("%c", 30);
        }
        printf("tick %s%c", PQgetvalue(info, 0, 1), 30);
        run(db, "select pgq.finish_batch($1)", 1, batch);
    }
}
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; without a compiler and libpq's header the test is left out."""
    compiler, place = shutil.which("cc"), tmp_path_factory.mktemp("consumer")
    include = Path("/usr/include/postgresql")
    if compiler is None:
        pytest.skip(wanting("a C compiler"))
    if not (include / "libpq-fe.h").exists():
        pytest.skip(wanting("libpq-fe.h"))
    (place / "consumer.c").write_text(SOURCE)
    command = [compiler, f"-I{include}", "-o", "consumer", "consumer.c", "-lpq"]
    subprocess.run(command, cwd=place, check=True)
    return place / "consumer"


def read(program: Path, db: Database, queue: str) -> list[str]:
    command = [str(program), db.connstr, queue, "c_reader"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split("\x1e")[:-1]


def move(here: Database, there: Database, queue: str) -> None:
    """Let the consumer go on at another node, at the tick that it has reached."""
    position = "select last_tick from pgq.get_consumer_info(%s, 'c_reader')"
    tick = here.value(position, [queue])
    here.value("select pgq.unregister_consumer(%s, 'c_reader')", [queue])
    there.value("select pgq.register_consumer_at(%s, 'c_reader', %s)", [queue, tick])


def test_a_consumer_in_c_moves_between_root_and_branch(make_db: MakeDb, consumer: Path) -> None:
    lab = Cascade(make_db(autocommit=True), make_db(autocommit=True)).create()
    root, branch, queue = lab.root, lab.branch, lab.queue
    register = "select pgq.register_consumer_at(%s, 'c_reader', %s)"
    first = lab.top(branch)
    root.value(register, [queue, first])
    got, nodes = list[str](), [root, branch, root, branch]
    for here, there in zip(nodes, [*nodes[1:], root], strict=True):
        for count in (2, 0, 3):
            lab.insert(n=count)
            lab.tick()
        lab.insert(kind="EXECUTE")
        lab.forward()  # all of that is one batch of the branch
        lab.tick()
        got += read(consumer, here, queue)
        lab.forward()  # its tick is there, too
        move(here, there, queue)
    got += read(consumer, root, queue)
    assert got[-1] == f"tick {lab.top(root)}"
    root.value(register, [queue, first])
    assert got == read(consumer, root, queue), "each event and each tick once, wherever it read"
    assert sum(not line.startswith("tick ") for line in got) == 6 * len(nodes)
