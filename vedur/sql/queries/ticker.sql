-- name: databases
-- Databases that may hold queues.
select datname
from pg_catalog.pg_database
where datallowconn
    and not datistemplate
order by datname

-- name: pgq_state
-- Whether the database has queues, and whether its ticker tells listeners about ticks by itself.
select
    pg_catalog.to_regprocedure('pgq.version()') is not null as installed,
    exists (
        select 1
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'pgq'
            and p.prosrc like '%%pg_notify%%'
    ) as notifies

-- name: version
-- The version of the queue contract.
select pgq.version()

-- name: ticker
-- Ticks every queue that is due; answers how many were.
select pgq.ticker()

-- name: last_ticks
-- The last tick of each queue, and for how long events may wait for one in seconds (null: ticks come from elsewhere);
-- one index probe a queue.
select q.queue_name,
    t.tick_id,
    t.tick_event_seq,
    case when not q.queue_external_ticker then extract(epoch from q.queue_ticker_max_lag)::float8 end as max_lag
from pgq.queue q
cross join lateral (
    select k.tick_id, k.tick_event_seq
    from pgq.tick k
    where k.tick_queue = q.queue_id
    order by k.tick_queue desc, k.tick_id desc
    limit 1
) t

-- name: notify_tick
-- Wakes the listeners of queues in a database whose ticker does not.
select pg_catalog.pg_notify('pgq_tick', payload)
from pg_catalog.unnest(%s::text[]) as payload

-- name: maint_operations
-- What has to be done now, in this order; each line in a transaction of its own.
select func_name, func_arg
from pgq.maint_operations()

-- name: retry_events
-- Puts some events of the retry queue back; answers how many.
select pgq.maint_retry_events()
