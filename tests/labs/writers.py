"""Writers on the root beside a `first_copy.Lab`, and the tables that show what they have done."""

from __future__ import annotations

import threading

from tests.labs.first_copy import Lab
from vedur import db as vdb

TABLE = "create table {} (id int primary key, n int not null, v text)"


class Writers:
    """Counts up rows and inserts others on the root: what comes twice or not at all is seen."""

    def __init__(self, lab: Lab, *tables: str) -> None:
        self.lab, self.tables = lab, tables
        self.rounds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        with vdb.connect(self.lab.root.connstr, autocommit=True) as db:
            while not self._stop.wait(0.005):
                self.rounds += 1
                for table in self.tables:
                    at = self.rounds
                    with db.transaction():
                        db.execute(f"update {table} set n = n + 1 where id = %s", [1 + at % 50])
                        db.execute(f"insert into {table} values (%s, 0, 'new')", [100_000 + at])
                        db.execute(f"delete from {table} where id = %s", [99_000 + at])

    def __enter__(self) -> Writers:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=120)

    def go_on(self, rounds: int = 30) -> None:
        """Until so many more rounds are written."""
        until = self.rounds + rounds
        self.lab.wait_until(lambda: self.rounds >= until)


def make(lab: Lab, *tables: str, rows: int = 3000) -> None:
    """Tables on both sides, rows on the root."""
    for table in tables:
        for db in (lab.root, lab.leaf):
            db.execute(TABLE.format(table))
        fill = f"insert into {table} select i, 0, repeat('x', 50) from generate_series(1, %s) i"
        lab.root.execute(fill, [rows])


def check(lab: Lab, *tables: str) -> None:
    """Everything arrived, once, and nothing is left behind."""
    lab.wait_ok()
    lab.settle()
    for table in tables:
        lab.same(table)
    lab.wait_until(lambda: lab.debris() == [])
