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

-- name: last_tick
-- The newest tick of a queue.
select t.tick_id, t.tick_time
from pgq.tick t
     join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s
order by t.tick_id desc
limit 1

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
