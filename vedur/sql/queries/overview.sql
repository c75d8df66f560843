-- Statements of the overview (vedur/status/overview.py), which the status page shows. They only read.

-- name: read_only
-- A session that looks and never touches, and that gives up rather than wait.
set default_transaction_read_only = on; set statement_timeout = '5s'; set lock_timeout = '1s'

-- name: ping
-- Does the database answer?
select 1

-- name: tick_positions
-- How far behind the newest tick others are: age of the tick that they have, age of the first one that they
-- do not have (0: they have all), and events between. A tick that was cleaned away counts as the next one.
select w.tick_id,
    extract(epoch from pg_catalog.clock_timestamp() - t.tick_time)::float8 as age,
    coalesce(extract(epoch from pg_catalog.clock_timestamp() - n.tick_time), 0)::float8 as lag,
    coalesce(top.tick_event_seq - coalesce(t.tick_event_seq, n.tick_event_seq), 0)::bigint as events
from pg_catalog.unnest(%s::bigint[]) as w (tick_id)
cross join (select q.queue_id from pgq.queue q where q.queue_name = %s) q
left join pgq.tick t on t.tick_queue = q.queue_id and t.tick_id = w.tick_id
left join lateral (
    select k.tick_time, k.tick_event_seq
    from pgq.tick k
    where k.tick_queue = q.queue_id and k.tick_id > w.tick_id
    order by k.tick_id
    limit 1
) n on true
left join lateral (
    select k.tick_event_seq
    from pgq.tick k
    where k.tick_queue = q.queue_id
    order by k.tick_id desc
    limit 1
) top on true

-- name: queue_health
-- The queue of a node; no row on a leaf.
select i.queue_ntables as event_tables,
    i.queue_cur_table as current_table,
    extract(epoch from i.queue_rotation_period)::float8 as rotation_period,
    extract(epoch from pg_catalog.clock_timestamp() - i.queue_switch_time)::float8 as since_rotation,
    i.queue_external_ticker as external_ticker,
    i.queue_ticker_paused as ticker_paused,
    extract(epoch from i.queue_ticker_idle_period)::float8 as idle_period,
    extract(epoch from i.ticker_lag)::float8 as ticker_lag,
    i.ev_per_sec as events_per_second,
    i.ev_new as events_new,
    i.last_tick_id as last_tick,
    (
        select k.tick_id
        from pgq.tick k
        where k.tick_queue = q.queue_id
        order by k.tick_id
        limit 1
    ) as first_tick,
    (
        select k.tick_event_seq
        from pgq.tick k
        where k.tick_queue = q.queue_id
        order by k.tick_id desc
        limit 1
    ) as events_total
from pgq.get_queue_info(%s) i
join pgq.queue q on q.queue_name = i.queue_name

-- name: event_tables
-- The tables that hold a queue's events, with their sizes on disk.
select n.number,
    coalesce(pg_catalog.pg_total_relation_size(c.oid), 0)::bigint as bytes
from pgq.queue q
cross join lateral pg_catalog.generate_series(0, q.queue_ntables - 1) as n (number)
left join pg_catalog.pg_class c
    on c.oid = pg_catalog.to_regclass(pgq.quote_fqname(q.queue_data_pfx || '_' || n.number))
where q.queue_name = %s
order by n.number

-- name: consumers
-- Who reads the queue.
select c.consumer_name,
    extract(epoch from c.lag)::float8 as lag,
    extract(epoch from c.last_seen)::float8 as last_seen,
    c.last_tick,
    c.pending_events
from pgq.get_consumer_info(%s) c
order by c.consumer_name

-- name: long_transactions
-- Open transactions that hold back batches or rotation, the oldest first. Others' are seen only by roles with
-- pg_read_all_stats.
select a.pid,
    coalesce(a.usename, '')::text as role,
    coalesce(a.datname, '')::text as database,
    coalesce(a.application_name, '') as application,
    coalesce(a.state, '') as state,
    extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::float8 as seconds
from pg_catalog.pg_stat_activity a
where a.xact_start < pg_catalog.clock_timestamp() - %s * interval '1 second'
    and (a.backend_xid is not null or a.backend_xmin is not null)
    and a.backend_type = 'client backend'
order by a.xact_start
limit 10

-- name: installed
-- Which of our tables this database has, and which version of us made them.
select pg_catalog.to_regclass('vedur.component') is not null as component,
    pg_catalog.to_regclass('vedur.batch_log') is not null as batch_log,
    pg_catalog.to_regclass('vedur.replay_error') is not null as replay_error,
    pg_catalog.to_regclass('vedur.quarantine') is not null as quarantine

-- name: version
-- The version of us that installed schema vedur.
select c.version from vedur.component c where c.schema = 'vedur'

-- name: batches
-- The last batches that this node applied, the newest first.
select b.batch_nr,
    b.prev_tick,
    b.tick_id,
    b.events,
    b.events_total,
    b.stage_seconds,
    b.merge_seconds,
    b.commit_seconds,
    b.finish_seconds,
    extract(epoch from pg_catalog.clock_timestamp() - b.finished_at)::float8 as seconds_ago
from vedur.batch_log b
where b.queue_name = %s
order by b.batch_nr desc
limit %s

-- name: applied_rate
-- Events a second that this node applied in the last minute. The log is a ring of 200 batches (vedur.log_batch): where
-- it is full it may reach back less than a minute, so what it has is divided by the time that it reaches back.
select coalesce(
        sum(b.events) filter (where b.finished_at > pg_catalog.clock_timestamp() - interval '1 minute'),
        0
    )::float8
    / case
        when count(*) < 200 then 60
        else least(60, greatest(1, extract(epoch from pg_catalog.clock_timestamp() - min(b.finished_at))::float8))
    end
from vedur.batch_log b
where b.queue_name = %s

-- name: quarantine
-- Events in quarantine, by table.
select coalesce(q.table_name, '') as table_name,
    count(*) as events,
    count(*) filter (where q.cause = 'error') as refused,
    count(*) filter (where q.cause = 'held') as held,
    count(*) filter (where q.cause = 'skipped') as skipped,
    extract(epoch from pg_catalog.clock_timestamp() - min(q.quarantined_at))::float8 as seconds
from vedur.quarantine q
where q.queue_name = %s
group by q.table_name
order by count(*) desc
limit %s
