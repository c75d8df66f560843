-- Statements of the worker (vedur/worker, vedur/queue/batches.py).

-- name: subscription
-- A consumer's place in a queue.
select s.sub_id, pgq.quote_fqname(q.queue_data_pfx) as queue_data_pfx, s.sub_last_tick, s.sub_batch
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %s and c.co_name = %s

-- name: ticks
-- Ticks of a range, both ends included; their time as a clock on the wall of the database's time zone shows it.
select t.tick_id, t.tick_snapshot::text as snapshot, t.tick_event_seq,
    to_char(t.tick_time at time zone %s, 'YYYY-MM-DD HH24:MI:SS') as tick_time,
    t.tick_time as moment
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s and t.tick_id between %s and %s
order by t.tick_id

-- name: next_ticks
-- So many ticks from one on. With a join the server would read all later ticks to sort them.
select t.tick_id, t.tick_snapshot::text as snapshot, t.tick_event_seq,
    to_char(t.tick_time at time zone %s, 'YYYY-MM-DD HH24:MI:SS') as tick_time,
    t.tick_time as moment
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id >= %s
order by t.tick_id
limit %s

-- name: backlog
-- Event numbers used between a tick and the newest one of an age. A clock that was set back may have left ticks of
-- times to come: of age 0 is every tick.
select (
    select t.tick_event_seq
    from pgq.tick t
    cross join (select %s::interval as least) age
    where t.tick_queue = q.queue_id and (age.least = interval '0' or t.tick_time <= now() - age.least)
    order by t.tick_id desc
    limit 1
) - (
    select t.tick_event_seq
    from pgq.tick t
    where t.tick_queue = q.queue_id and t.tick_id = %s
)
from pgq.queue q
where q.queue_name = %s

-- name: next_batch
-- Open a batch, or get the open one again.
select * from pgq.next_batch_custom(%s, %s, %s::interval, %s::int4, %s::interval)

-- name: finish_batch
-- Close a batch.
select pgq.finish_batch(%s)

-- name: any_event
-- Is there anything in a slice at all?
select exists (select 1 from {events} where {slice})

-- name: event_places
-- Where in the event tables a range begins and ends, and how many events it has.
select min(ctid)::text as first, max(ctid)::text as last, count(*) as events from {events} where {slice}

-- name: late_events
-- How many events some transactions wrote, counted up to a limit.
select count(*) from (select 1 from {events} where ev_txid = any (array[{txids}]::bigint[]) limit {most}) e

-- name: listen
-- The ticker tells about new ticks.
listen pgq_tick

-- name: has_holds
-- Does this database know of holds?
select pg_catalog.to_regprocedure('vedur.get_hold(text,text,bigint)') is not null

-- name: get_hold
-- The tick that this consumer may not pass now, null for none (docs/design/compare.md).
select vedur.get_hold(%s, %s, %s)

-- name: table_attrs
-- The attributes and states of the tables that this node has, as they are now.
select table_name, table_attrs, merge_state
from londiste.table_info
where queue_name = %s and local

-- name: has_batch_log
-- Does this database keep a log of batches?
select pg_catalog.to_regprocedure(
    'vedur.log_batch(text,text,bigint,bigint,bigint,double precision,double precision,double precision,double precision)'
) is not null

-- name: log_batch
-- Remember a finished batch. Nothing is lost if a crash forgets it, so its commit waits for no disk.
set local synchronous_commit = off;
select vedur.log_batch(%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: is_tagged_dead
-- Has this node been told that another one is gone?
select dead from pgq_node.node_location where queue_name = %s and node_name = %s
