"""A backlog read and decoded once more, and written nowhere: replay without a target.

One process reads the events of the backlog that a leaf has just applied, in one slice, and turns
them into the text that would be copied into staging tables; that text is thrown away. No Spark, no
second slice, no merge: so it is neither a floor of the whole nor what a task does beside others,
but says where the time of an event goes.
"""

from __future__ import annotations

import time
from typing import Any

from bench.field import QUEUE, Field, Vedur
from vedur.catalog import get_table_list
from vedur.clock import SYSTEM
from vedur.db.copy import copy_blocks
from vedur.errors import StateError
from vedur.pipeline.replay.collapse import Collapser
from vedur.pipeline.replay.fast_path.columns import LEAST_RUN
from vedur.pipeline.replay.fast_path.rows import FastReader
from vedur.pipeline.replay.staging_tables import load_specs
from vedur.pipeline.replay.task import FLUSH_BYTES
from vedur.pipeline.spark.tasks import settle
from vedur.queue.batches import event_range, get_subscription, get_ticks
from vedur.sql import query
from vedur.worker.batch import replicas

_BLOCK = 1 << 20
_POSITION = "select last_tick_id from pgq_node.local_state where queue_name = %s"


def position(ground: Field, peer: Vedur) -> int:
    """Read the tick that the leaf has applied."""
    with ground.open("leaf", peer.name) as db:
        return int(db.value(_POSITION, [QUEUE]))


def read_and_decode(ground: Field, peer: Vedur, first: int, last: int) -> dict[str, Any]:
    """Read the events between two ticks as a task does, write nothing; returns their number, the
    seconds, the seconds of processor time and the bytes that would have been copied."""
    settle()  # as a task has it before its first slice
    with ground.open("leaf", peer.name) as db:
        specs = load_specs(db, QUEUE, replicas(get_table_list(db, QUEUE).local))
    collapser, written = Collapser(specs), 0

    def drop() -> None:
        nonlocal written
        for buffer in collapser.take()[0].values():
            for copy in buffer.copies(1):
                written += sum(len(block) for block in copy.data)

    with ground.open("root", peer.name) as db:
        place = get_subscription(db, QUEUE, "leaf")
        if place is None:
            raise StateError("the leaf has no place in the queue")
        events = event_range(db, place, get_ticks(db, QUEUE, first, last), 1)
        text = query("replay", "read_events").format(
            system=query("replay", "is_system").split("\n", 1)[-1],
            events=events.events, slice=events.slices[0], owner=events.owner, timed="",
        )  # fmt: skip
        reader = FastReader(collapser, FLUSH_BYTES, drop, LEAST_RUN)
        began, spent = SYSTEM.monotonic(), time.process_time()
        for block in copy_blocks(db, text, _BLOCK):
            reader.feed(block)
        reader.end()
        if collapser.buffers:
            drop()
        seconds, cpu = SYSTEM.monotonic() - began, time.process_time() - spent
    return {"events": collapser.events, "seconds": seconds, "cpu": cpu, "written": written}
