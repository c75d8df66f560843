-- Statements of the Spark data source.

-- name: queue
-- Where the events of a queue are, its first and its last tick.
select pgq.quote_fqname(q.queue_data_pfx) as events,
    (select min(t.tick_id) from pgq.tick t where t.tick_queue = q.queue_id) as first_tick,
    (select max(t.tick_id) from pgq.tick t where t.tick_queue = q.queue_id) as last_tick
from pgq.queue q
where q.queue_name = %s

-- name: tick_at_most
-- The last tick up to a number: numbers have gaps where a ticker's transaction failed.
select t.tick_id, t.tick_snapshot::text as snapshot, t.tick_event_seq
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id <= %s
order by t.tick_id desc
limit 1

-- name: tick_beyond
-- The first tick after one, up to a last one, that has more than so many event numbers behind it.
select t.tick_id
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id > %s
    and t.tick_id <= %s
    and t.tick_event_seq > %s
order by t.tick_id
limit 1

-- name: tick_before
-- The last tick before one that comes after another.
select t.tick_id
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id > %s
    and t.tick_id < %s
order by t.tick_id desc
limit 1

-- name: tick_times
-- Ticks of a range, both ends included, with their times in microseconds since 1970.
select t.tick_id, t.tick_snapshot::text as snapshot,
    (extract(epoch from t.tick_time) * 1000000)::int8 as micros
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id between %s and %s
order by t.tick_id

-- name: has_tick
-- A tick that is still there still has all events after it.
select exists (
    select 1
    from pgq.tick t
    where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
        and t.tick_id = %s)

-- name: read_events
-- One slice of a tick range in the order of its events. Events with an owner are another consumer's
-- second attempts.
copy (
    select {columns}
    from {events}
    where {slice}
        and ev_owner is null
        and {filter}
    order by ev_id
) to stdout

-- name: move_consumer
-- Register a consumer at a tick, or move it there.
select pgq.register_consumer_at(%s, %s, %s)

-- name: advance_consumer
-- Move a consumer on to a tick, never back; no row if it stands there or beyond already.
select pgq.register_consumer_at(q.queue_name, c.co_name, %(tick)s)
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %(queue)s
    and c.co_name = %(consumer)s
    and s.sub_last_tick < %(tick)s
