-- Statements of operators' actions (vedur/ops).

-- name: advisory_lock
-- A lock that only sessions of the same database can see.
select pg_catalog.pg_advisory_lock(%s)

-- name: try_advisory_lock
-- Can this session have it?
select pg_catalog.pg_try_advisory_lock(%s)

-- name: advisory_unlock
-- Give it back.
select pg_catalog.pg_advisory_unlock(%s)

-- name: set_local_statement_timeout
-- A statement that waits for a lock must not stand in the way of others for long.
select pg_catalog.set_config('statement_timeout', %s, true)

-- name: tick_after
-- The first tick of a queue whose transaction began after a moment.
select min(t.tick_id) as tick_id
from pgq.tick t
     join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s
  and t.tick_time > %s

-- name: force_tick
-- Make the ticker write a tick at its next round.
select pgq.force_tick(%s)

-- name: now
-- The clock of the server, not of the transaction.
select pg_catalog.clock_timestamp()

-- name: has_schema
-- Does a schema exist?
select exists (select 1 from pg_catalog.pg_namespace where nspname = %s)

-- name: begin_branch
-- The queue of a new branch has one tick, which is the provider's of that number.
with gone as (
    delete from pgq.tick t
    using pgq.queue q
    where q.queue_name = %(queue)s and t.tick_queue = q.queue_id and t.tick_id <> %(tick)s
)
update pgq.tick t
set tick_time = %(time)s, tick_event_seq = %(event_seq)s
from pgq.queue q
where q.queue_name = %(queue)s and t.tick_queue = q.queue_id and t.tick_id = %(tick)s

-- name: queue_settings
-- What pgq.set_queue_config sets and a branch has from its provider.
select queue_ticker_max_count::text as ticker_max_count, queue_ticker_max_lag::text as ticker_max_lag,
    queue_ticker_idle_period::text as ticker_idle_period, queue_rotation_period::text as rotation_period
from pgq.queue
where queue_name = %s

-- name: lock_destination
-- One command at a time adds a table of this name here, until the end of its transaction.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.destination ' || %s, 0))

-- name: queue_to_fill
-- Is there a queue, and what is this node in the set that it belongs to?
select exists (select from pgq.queue where queue_name = {queue}) as there,
    (select n.node_type from pgq_node.node_info n where n.queue_name = {queue}) as node_type

-- name: pass_event
-- An event of one queue becomes one of another.
select pgq.insert_event_raw(%s, null, %s::timestamptz, null, null, %s, %s, %s, %s, %s, %s)
