"""A slice that is read once is passed on, and taken, as one that is read twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from vedur.db import Database
from vedur.db.copy import copy_blocks
from vedur.errors import DatabaseError, StateError
from vedur.pipeline.replay import forward
from vedur.pipeline.replay.fast_path.binary import BinaryBlock
from vedur.pipeline.replay.forward import ForwardedSlice, forward_slice
from vedur.sql import query

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
            block = BinaryBlock(rows.data, rows.sizes)
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


def rows_of(text: str) -> list[list[Any]]:
    """The fields of rows; of events that are not about rows the extra ones, too."""
    found: list[list[Any]] = [[*fields(row)] for row in text.split("\n")[:-1]]
    for row in found:
        row[3] = json.loads(row[3]) if row[3] else ""
    return found


def test_one_reading_gives_both(events: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_BLOCK_BYTES", 4000)
    reading = events.once()
    text = events.text(reading.blocks())
    assert reading.count == len(events.events()) > 300
    assert rows_of(text) == rows_of(events.read_text())
    assert events.staged(7) == events.events()
    lab = events.cascade
    assert forward_slice(lab.root, lab.branch, "pgq.event_1", ALL, lab.stage, 8) == reading.count
    assert events.staged(8) == events.staged(7)


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
