"""Nodes that are set back to an earlier state, as a restore from a backup sets them back.

Databases are cloned (`create database ... template`) instead of dumped, which leaves the same
behind: rows, positions, ticks and sequences of an earlier moment. Where transaction numbers must go
back as well, the data directory of a private server is put back (`DataDirectory`).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER
from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.db.conninfo import with_params
from vedur.demo.server import Server
from vedur.ops.session import Session
from vedur.worker.loop import Worker


class HasWorker(Protocol):
    """A node of a laboratory; its worker has connections to the database."""

    worker: Worker


class Backup:
    """A database as it was, to be put back under its own name."""

    def __init__(self, node: HasWorker, db: Database) -> None:
        self.node, self.db, self.name = node, db, str(db.value("select current_database()"))
        self.copy = f"{self.name}_backup"
        self._clone(self.name, self.copy)

    def restore(self) -> None:
        self._clone(self.copy, self.name, keep=False)

    def _clone(self, source: str, name: str, keep: bool = True) -> None:
        self.node.worker._close_connections()
        connstr = self.db.connstr
        self.db.close()
        with vdb.connect(with_params(connstr, dbname="postgres"), autocommit=True) as a:
            a.execute(f'drop database if exists "{name}" with (force)')
            # connections of tasks are kept from one to the next
            others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
            while a.query(others, [source]):
                SYSTEM.sleep(0.01)
            a.execute(f'create database "{name}" template "{source}"')
            if not keep:
                a.execute(f'drop database "{source}" with (force)')
        fresh = vdb.connect(connstr, autocommit=True)
        self.db.raw = fresh.raw


class DataDirectory:
    """A private server whose data directory is put back as it was. Its transaction numbers and
    sequences go back with it, as on a standby that was behind, or after recovery to an earlier
    time; `Backup` leaves them as they are, since a clone is in the same server.

    Sessions with it must be closed before; those of `dbs` are made anew.
    """

    def __init__(self, server: Server, *dbs: Database) -> None:
        self.server, self.dbs = server, dbs
        self.saved = server.data.parent / "saved"

    def save(self) -> None:
        """Keep the present state."""
        with self._stopped():
            subprocess.run(["cp", "-a", self.server.data, self.saved], check=True)

    def restore(self) -> None:
        """Go back to the state that was kept."""
        with self._stopped():
            shutil.rmtree(self.server.data)
            self.saved.rename(self.server.data)

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        connstrs = [db.connstr for db in self.dbs]
        for db in self.dbs:
            db.close()
        self.server.stop()
        yield
        self.server.start()
        for db, connstr in zip(self.dbs, connstrs, strict=True):
            db.raw = vdb.connect(connstr, autocommit=True).raw


def burn(db: Database, count: int) -> None:
    """Use up transaction numbers of a server."""
    db.execute("create table if not exists burnt (i int)")
    db.execute(
        f"do $$ begin for i in 1..{count} loop begin insert into burnt values (1); "
        "raise exception ''; exception when raise_exception then null; end; end loop; end $$"
    )


def position(leaf: Leaf) -> int:
    return int(leaf.leaf.value("select last_tick_id from pgq_node.local_state"))


def consumer(leaf: Leaf) -> int:
    return int(
        leaf.root.value("select last_tick from pgq.get_consumer_info(%s, %s)", [QUEUE, WORKER])
    )


def session(leaf: Leaf) -> Session:
    return Session(LondisteSettings(db=leaf.leaf.connstr, queue_name=QUEUE, job_name="leaf"))
