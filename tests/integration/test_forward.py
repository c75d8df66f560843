"""A slice that is read once is passed on, and taken, as one that is read twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.fixtures.pg import MakeDb
from tests.labs.any_bytes import ascii_root, writing_bytes
from tests.labs.cascade import Cascade
from tests.labs.chain import Chain
from tests.labs.in_process import without_spark
from vedur.change.formats import fields
from vedur.db import Database, copied_rows
from vedur.db.copy import copy_blocks
from vedur.errors import DatabaseError, StateError
from vedur.pipeline.replay import forward
from vedur.pipeline.replay.fast_path.binary import BinaryBlock
from vedur.pipeline.replay.forward import ForwardedSlice, forward_slice
from vedur.pipeline.replay.staging_tables import ensure_stages, load_specs, stage_name
from vedur.pipeline.replay.task import StageTask
from vedur.sql import query
from vedur.tables.mapping import TableMap

__all__ = ["ascii_root", "without_spark"]

COLUMNS = "ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
ALL = "ev_txid between 0 and 9223372036854775807"

#: Types, payloads, tables and the other extra fields, each combined with each.
ODD = r"""
insert into pgq.event_1_0
    (ev_id, ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
select 1000 + row_number() over (),
    timestamptz '2026-01-01 00:00+02' + row_number() over () * interval '1 us',
    t.v, d.v, e.v, x.v, null, e.v
from (values ('I'), ('{"op":"UPDATE"}'), ('EXECUTE'), ('pgq.tick-id'), ('londiste.add-table'),
    (null), (E'\\N'), ('')) t (v)
cross join (values (null), (''), ('{"id":1,"t":"é"}'), (E'{"t":"a\\"b"}'),
    (E'tab\tline\nback\\'), (E'\b\f\v\r\x01')) d (v)
cross join (values (null), (''), ('public.t'), (E'odd\t\\')) e (v)
cross join (values (null), (E'"\n')) x (v)
"""


@dataclass
class Slice:
    """The events of a queue, and where they go."""

    cascade: Cascade

    def once(self, number: int = 7, owner: int = 0) -> ForwardedSlice:
        lab = self.cascade
        return ForwardedSlice(lab.root, lab.branch, "pgq.event_1", ALL, owner, lab.stage, number)

    def text(self, blocks: Iterator[Any]) -> str:
        found = ""
        for rows in blocks:
            block = BinaryBlock(rows)
            found += block.text(np.arange(block.count))
        return found

    def read_text(self, owner: int = 0) -> str:
        """Return what a leaf reads of the same events."""
        text = query("replay", "read_events").format(
            system=query("replay", "is_system").split("\n", 1)[-1], events="pgq.event_1",
            slice=ALL, owner=owner, timed="",
        )  # fmt: skip
        return b"".join(copy_blocks(self.cascade.root, text, 1 << 20)).decode()

    def staged(self, number: int) -> list[tuple[Any, ...]]:
        text = f"select {COLUMNS} from {self.cascade.stage} where slice = %s order by ev_id"
        return [tuple(row) for row in self.cascade.branch.query(text, [number])]

    def events(self) -> list[tuple[Any, ...]]:
        text = f"select {COLUMNS} from pgq.event_1 where ev_owner is null order by ev_id"
        return [tuple(row) for row in self.cascade.root.query(text)]


@pytest.fixture
def events(make_db: MakeDb) -> Slice:
    """A root and a branch; the root's queue has odd events."""
    cascade = Cascade(make_db(autocommit=True), make_db(autocommit=True)).create()
    cascade.root.execute(ODD)
    return Slice(cascade)


def read_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_BLOCK_BYTES", 4000)
    monkeypatch.setattr(copied_rows, "_ROOM", 2000)


def rows_of(text: str) -> list[list[Any]]:
    """The fields of rows; of events that are not about rows the extra ones, too."""
    found: list[list[Any]] = [[*fields(row)] for row in text.split("\n")[:-1]]
    for row in found:
        row[3] = json.loads(row[3]) if row[3] else ""
    return found


@pytest.mark.parametrize("plain", [True, False])
def test_one_reading_gives_both(
    events: Slice, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    read_little_at_a_time(monkeypatch)
    monkeypatch.setattr(copied_rows, "is_plain", lambda db: plain)
    reading = events.once()
    text = events.text(reading.blocks())
    assert reading.count == len(events.events()) > 300
    assert rows_of(text) == rows_of(events.read_text())
    assert events.staged(7) == events.events()
    lab = events.cascade
    assert forward_slice(lab.root, lab.branch, "pgq.event_1", ALL, lab.stage, 8) == reading.count
    assert events.staged(8) == events.staged(7)


def test_the_target_is_free_for_others_in_between(
    events: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Net changes are written while there is more to read, where they do not fit into memory."""
    read_little_at_a_time(monkeypatch)
    lab, reading, counts = events.cascade, events.once(), []
    text = f"select count(*) from {lab.stage} where slice = 7"
    with lab.branch.transaction():
        for _ in reading.blocks():
            reading.pause()
            counts.append(lab.branch.value(text))
    assert counts == sorted(set(counts))
    assert len(counts) > 3
    assert events.staged(7) == events.events()


def test_a_task_with_little_memory_forwards_all(
    events: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_at_a_time(monkeypatch)
    lab, table = events.cascade, TableMap("public.t", "public.t")
    lab.root.execute(
        "insert into pgq.event_1_0 (ev_id, ev_time, ev_type, ev_data, ev_extra1)"
        """ select 5000 + g, now(), '{"op":"INSERT","table":["public","t"],"pkey":["id"]}',"""
        """ format('{"id":%s}', g), 'public.t' """
        " from generate_series(1, 500) g"
    )
    lab.root.execute("delete from pgq.event_1_0 where ev_id < 5000")
    lab.branch.execute("create table t (id int primary key)")
    specs = load_specs(lab.branch, lab.queue, [table])
    ensure_stages(lab.branch, lab.queue, specs.values(), 0)
    task = StageTask(
        lab.root.connstr, lab.branch.connstr, lab.queue, "pgq.event_1", 0, 0, specs,
        flush_bytes=8000, keep_links=False, raw_stage=lab.stage,
    )  # fmt: skip
    found = task(ALL)
    assert found["raw"] == found["events"] == 500
    assert found["tables"]["public.t"]["chunks"] > 3
    assert events.staged(found["slice"]) == events.events()
    stage = stage_name(specs["public.t"], 0)
    assert lab.branch.value(f"select count(distinct c0) from {stage}") == 500


@pytest.mark.parametrize("when", ["yielded", "written"])
def test_a_slice_that_fails_leaves_the_connection_usable(
    events: Slice, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    read_little_at_a_time(monkeypatch)
    lab, reading = events.cascade, events.once()
    if when == "written":
        lab.branch.execute(f"alter table {lab.stage} add check (ev_id < 1100)")
    failed = pytest.raises((ZeroDivisionError, DatabaseError))
    with failed, lab.branch.transaction(), closing(reading.blocks()) as blocks:
        for _ in blocks:
            if when == "yielded":
                raise ZeroDivisionError
    assert events.staged(7) == []
    lab.root.close()


def test_a_slice_without_events(events: Slice) -> None:
    events.cascade.root.execute("truncate pgq.event_1_0")
    reading = events.once()
    assert (events.text(reading.blocks()), reading.count, events.staged(7)) == ("", 0, [])


def test_retries_are_refused_or_left(events: Slice) -> None:
    root: Database = events.cascade.root
    root.execute("update pgq.event_1_0 set ev_owner = 5, ev_retry = 1 where ev_id = 1003")
    reading = events.once(owner=4)  # of another consumer
    assert rows_of(events.text(reading.blocks())) == rows_of(events.read_text(owner=4))
    assert events.staged(7) == events.events()
    with pytest.raises(StateError, match="event 1003 is a retry"):
        events.text(events.once(9, owner=5).blocks())
    assert events.staged(9) == []


@pytest.mark.usefixtures("without_spark")
def test_a_provider_without_an_encoding(ascii_root: Database, make_db: MakeDb) -> None:
    """Its events are read twice; a branch that cannot have their bytes refuses them, and stays."""
    chain = Chain([ascii_root, make_db(), make_db()], make_db)
    chain.table("public.t", "create table t (id int primary key, v text)")
    since = chain.catch_up()
    chain.root.execute("insert into t values (1, 'é')")
    stands = chain.catch_up()
    assert len(chain.require_same("t")) == 1
    assert chain.require_queues(since) == 1
    with writing_bytes(ascii_root) as app:
        app.execute(b"insert into t values (2, '\xff')")
    with pytest.raises(DatabaseError, match="invalid byte sequence"):
        chain.catch_up("n2")
    assert chain["n2"].position == stands
    assert max(chain["n2"].ticks()) == stands
    chain.close()
