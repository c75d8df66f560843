"""The queue of a branch against the root's: every tick, and every event of every batch.

A consumer of the campaign's own reads both queues from tick to tick, in every cycle from where it
stopped in the one before, so that no event passes unread. It keeps rotation back for one cycle.
"""

from __future__ import annotations

import time
from typing import Any

from tests.torture.checks import SETTLE, Failed
from tests.torture.rig import ROOT, Rig
from vedur.demo.lab import QUEUE

CONSUMER = "campaign"
#: A queue must have let go of what was written so many cycles ago.
KEPT_CYCLES = 3

_SETUP = """
create schema torture;
create function torture.read_on(queue text, consumer text, upto bigint)
returns table (tick bigint, at timestamptz, seq bigint, events bigint, sum text)
language plpgsql as $$
declare
    b record;
begin
    loop
        select * into b from pgq.next_batch_info(queue, consumer);
        exit when b.batch_id is null or b.cur_tick_id > upto;
        tick := b.cur_tick_id; at := b.cur_tick_time; seq := b.cur_tick_event_seq;
        select count(*), md5(string_agg(
                row(ev_id, ev_time, ev_retry, ev_type,
                    -- with sync_watermark a branch tells of a watermark of its own
                    case when ev_type <> 'pgq.global-watermark' then ev_data end,
                    ev_extra1, ev_extra2, ev_extra3, ev_extra4)::text, e'\\n' order by ev_id))
            into events, sum
            from pgq.get_batch_events(b.batch_id);
        return next;
        perform pgq.finish_batch(b.batch_id);
    end loop;
end $$;
"""
_REGISTER = "select pgq.register_consumer_at(%s, %s, %s)"
_STANDS = "select last_tick from pgq.get_consumer_info(%s, %s)"
_READ = "select tick, at, seq, events, sum from torture.read_on(%s, %s, %s)"


class Queues:
    """The queues of the root and of a branch, read side by side."""

    def __init__(self, rig: Rig, branch: str) -> None:
        self.rig, self.branch = rig, branch
        self.read = rig.last_tick(branch)
        self._goals: list[int] = []
        for node in (ROOT, branch):
            rig.query(node, _SETUP)
            rig.query(node, _REGISTER, [QUEUE, CONSUMER, self.read])

    def compare(self, upto: int) -> int:
        """All ticks up to one are the same, with the same events; how many events."""
        there, here = self._ticks(ROOT, upto), self._ticks(self.branch, upto)
        for tick in sorted(there.keys() | here.keys()):
            if there.get(tick) != here.get(tick):
                raise Failed(
                    f"tick {tick} of the branch: {here.get(tick)}, root has {there.get(tick)}"
                )
        if upto not in there:
            raise Failed(f"tick {upto} is not in the queue of the root")
        self.read = upto
        return sum(row[2] for row in there.values())

    def _ticks(self, node: str, upto: int) -> dict[int, tuple[Any, ...]]:
        # a server that crashed may have forgotten that ticks were read: they were compared
        if self.rig.value(node, _STANDS, [QUEUE, CONSUMER]) < self.read:
            self.rig.query(node, _REGISTER, [QUEUE, CONSUMER, self.read])
        return {row[0]: row[1:] for row in self.rig.query(node, _READ, [QUEUE, CONSUMER, upto])}

    def rotated(self, goal: int) -> None:
        """Neither queue keeps what everybody has read: ticks of some cycles ago are gone."""
        self._goals.append(goal)
        if len(self._goals) <= KEPT_CYCLES:
            return
        limit, deadline = self._goals.pop(0), time.monotonic() + SETTLE
        for node in (ROOT, self.branch):
            while (first := self.rig.value(node, "select min(tick_id) from pgq.tick")) <= limit:
                if time.monotonic() > deadline:
                    raise Failed(f"the queue of {node} is not rotated: tick {first} is still there")
                time.sleep(0.1)
