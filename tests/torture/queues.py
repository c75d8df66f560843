"""The queue of a branch against the root's: every tick, and every event of every batch.

A consumer of the campaign's own reads both queues from tick to tick, in every cycle from where it
stopped in the one before, so that no event passes unread. It keeps rotation back for one cycle.
All columns of all events must be the same, with two exceptions: a branch with `sync_watermark`
tells the nodes below a watermark of its own, which may not be ahead of the root's; and where it
passes on its own shard of a table (own_shard.py), events of the other one must not be there.
"""

from __future__ import annotations

import time
from typing import Any

from tests.torture.checks import SETTLE, Failed
from tests.torture.own_shard import LEFT_OUT
from tests.torture.rig import ROOT, Rig
from vedur.demo.lab import QUEUE

#: By tick: time, number of the last event, number of events, md5 of them but for the data of
#: watermarks, and the watermarks that were told (None: none).
Ticks = dict[int, tuple[Any, ...]]
CONSUMER = "campaign"
#: A queue must have let go of what was written so many cycles ago.
KEPT_CYCLES = 3

_SETUP = """
create schema torture;
create function torture.read_on(queue text, consumer text, upto bigint)
returns table (tick bigint, at timestamptz, seq bigint, events bigint, sum text, told text[])
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
                    case when ev_type <> 'pgq.global-watermark' then ev_data end,
                    ev_extra1, ev_extra2, ev_extra3, ev_extra4)::text, e'\\n' order by ev_id)),
                array_agg(ev_data order by ev_id) filter (where ev_type = 'pgq.global-watermark')
            into events, sum, told
            from pgq.get_batch_events(b.batch_id) where not ({left_out});
        return next;
        perform pgq.finish_batch(b.batch_id);
    end loop;
end $$;
"""
_REGISTER = "select pgq.register_consumer_at(%s, %s, %s)"
_STANDS = "select last_tick from pgq.get_consumer_info(%s, %s)"
_READ = "select tick, at, seq, events, sum, told from torture.read_on(%s, %s, %s)"


def own_watermarks(there: Ticks, here: Ticks, *, synced: bool) -> int:
    """Raise where a tick of the branch is not the root's; returns in how many ticks it tells
    another watermark, which only a branch with `sync_watermark` may, and none ahead of the root's.
    """
    own = 0
    for tick in sorted(there.keys() | here.keys()):
        want, have = there.get(tick), here.get(tick)
        if want == have:
            continue
        if want is None or have is None or want[:-1] != have[:-1] or not synced:
            raise Failed(f"tick {tick} of the branch: {have}, root has {want}")
        if any(int(a) > int(b) for a, b in zip(have[-1], want[-1], strict=True)):
            raise Failed(f"tick {tick}: the branch tells of {have[-1]}, root has {want[-1]}")
        own += 1
    return own


class Queues:
    """The queues of the root and of a branch, read side by side."""

    def __init__(self, rig: Rig, branch: str) -> None:
        self.rig, self.branch = rig, branch
        self.read = rig.last_tick(branch)
        self._goals: list[int] = []
        for node, left_out in ((ROOT, LEFT_OUT), (branch, "false")):
            rig.query(node, _SETUP.format(left_out=left_out))
            rig.query(node, _REGISTER, [QUEUE, CONSUMER, self.read])

    def compare(self, upto: int) -> dict[str, int]:
        """All ticks up to one are the same, with the same events; how many events, and how many
        watermarks of its own the branch has told."""
        there, here = self._ticks(ROOT, upto), self._ticks(self.branch, upto)
        own = own_watermarks(there, here, synced=self.rig.synced > 0)
        if upto not in there:
            raise Failed(f"tick {upto} is not in the queue of the root")
        self.read = upto
        self.rig.synced = max(0, self.rig.synced - 1)
        events = {"events": sum(row[2] for row in there.values())}
        return events | {"own watermarks": own} if own else events

    def _ticks(self, node: str, upto: int) -> Ticks:
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
