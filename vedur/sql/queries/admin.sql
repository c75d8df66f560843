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

-- name: call_worker
-- Say the newest tick of a queue again, so that workers which wait for one look around. A payload
-- must be shorter than 8000 bytes.
select pg_catalog.pg_notify('pgq_tick', q.queue_name || ':' || pg_catalog.max(t.tick_id))
from pgq.queue q
     join pgq.tick t on t.tick_queue = q.queue_id
where q.queue_name = %s
  and pg_catalog.octet_length(q.queue_name) < 7900
group by q.queue_name
