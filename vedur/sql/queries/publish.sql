-- Statements by which a branch passes on events and ticks. Words in braces are filled in by the code.

-- name: ticks
-- Ticks of a range on the provider, both ends included, with all that goes on to the next node.
select t.tick_id, t.tick_time::text as tick_time, t.tick_event_seq, t.tick_snapshot::text as tick_snapshot
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id between %s and %s
order by t.tick_id

-- name: raw_read
-- One slice of events as they are, on the provider; {number} is the slice number of the attempt. Events with an owner are
-- retries for one consumer of the provider and stay there. Binary, since nobody looks at a value on the way: the branch takes
-- 100,000 events so in 0.14 s of CPU, as text in 0.35 s. Types are named because binary values tell nothing of theirs.
copy (
    select {number}::bigint, ev_id::bigint, ev_time::timestamptz, ev_txid::bigint, ev_type::text, ev_data::text,
        ev_extra1::text, ev_extra2::text, ev_extra3::text, ev_extra4::text
    from {events}
    where {slice} and ev_owner is null
) to stdout (format binary)

-- name: raw_write
-- The same into the raw staging table of a slot.
copy {stage} (slice, ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
from stdin (format binary)

-- name: create_stage
-- Makes the raw staging table of a slot where it is missing, and names it.
select vedur.create_raw_stage(%s, %s)

-- name: drop_stages
-- Drops the raw staging tables of a queue.
select vedur.drop_raw_stages(%s)

-- name: can_publish
-- Does this database have what a branch passes events on with?
select pg_catalog.to_regprocedure(
    'vedur.publish(text,integer,bigint[],bigint,bigint[],timestamptz[],bigint[],text[],bigint)'
) is not null

-- name: has_shown_tick
-- Is this node a branch that can tell which tick its tables show?
select pg_catalog.to_regprocedure('vedur.shown_tick(text)') is not null
    and exists (select 1 from pgq_node.node_info where queue_name = %s and node_type = 'branch')

-- name: mark_tick_copy
-- The copy of this consumer goes by the tick that the branch shows.
select vedur.mark_tick_copy(%s, %s)

-- name: publish
-- Passes on a range of ticks with its events; in the transaction of the batch, after the merge.
select vedur.publish(
    %(queue)s, %(slot)s, %(slices)s::bigint[], %(events)s, %(ids)s::bigint[], %(times)s::timestamptz[],
    %(event_seqs)s::bigint[], %(snapshots)s::text[], %(watermark)s)

-- name: copies_by_snapshot
-- First copies of upstream's that are under way: ranges may have events of one tick only.
select * from vedur.copies_by_snapshot(%s)

-- name: shown_tick
-- On a branch that is copied from, in the snapshot that the copy reads: the tick that its tables show.
select tick_id, tick_time::text as tick_time, tick_event_seq, tick_snapshot from vedur.shown_tick(%s)

-- name: can_follow_settings
-- Does this database have what gives the queue of a branch its provider's settings?
select pg_catalog.to_regprocedure('vedur.follow_settings(text,integer,interval,interval,interval)') is not null

-- name: follow_settings
-- Give the queue of a branch its provider's settings; the names of those that were others.
select vedur.follow_settings(
    %(queue)s, %(ticker_max_count)s::integer, %(ticker_max_lag)s::interval, %(ticker_idle_period)s::interval,
    %(rotation_period)s::interval)
