-- Statements about stuck events, skips and the quarantine (vedur/catalog/quarantine.py, vedur/worker/quarantine.py, vedur/ops).

-- name: available
-- Does this database have the tables, and may this role work with them?
select pg_catalog.to_regclass('vedur.quarantine_log') is not null
    and pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.quarantine'), 'select')
    and pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.quarantine_log'), 'insert')

-- name: this_role
select pg_catalog.quote_ident(current_user)

-- name: record_stuck_event
-- What stops a consumer. The same event again: one attempt more. In a transaction of its own.
insert into vedur.replay_error as e (
    queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, table_name, dest_table,
    row_key, sqlstate, message, detail)
values (
    %(queue)s, %(consumer)s, %(prev_tick)s, %(tick)s, %(ev_id)s, %(ev_txid)s, %(ev_type)s, %(table)s,
    %(dest)s, %(key)s, %(sqlstate)s, %(message)s, %(detail)s)
on conflict (queue_name, consumer_name) do update
set prev_tick = excluded.prev_tick,
    tick_id = excluded.tick_id,
    ev_id = excluded.ev_id,
    ev_txid = excluded.ev_txid,
    ev_type = excluded.ev_type,
    table_name = excluded.table_name,
    dest_table = excluded.dest_table,
    row_key = excluded.row_key,
    sqlstate = excluded.sqlstate,
    message = excluded.message,
    detail = excluded.detail,
    last_seen = excluded.last_seen,
    attempts = case when e.ev_id is not distinct from excluded.ev_id and e.prev_tick = excluded.prev_tick
        then e.attempts + 1 else 1 end,
    first_seen = case when e.ev_id is not distinct from excluded.ev_id and e.prev_tick = excluded.prev_tick
        then e.first_seen else excluded.first_seen end

-- name: clear_stuck_event
-- The batch went through.
delete from vedur.replay_error where queue_name = %s and consumer_name = %s

-- name: stuck_events
-- What stops consumers of a queue.
select consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, table_name, dest_table, row_key,
    sqlstate, message, detail, attempts, first_seen, last_seen,
    extract(epoch from pg_catalog.clock_timestamp() - first_seen)::float8 as seconds
from vedur.replay_error
where queue_name = %s
order by consumer_name

-- name: open_skips
-- What an operator has told a consumer to skip and is not done.
select id, ev_id, ev_txid, table_name, tick_id, reason, asked_by, asked_at
from vedur.skip_request
where queue_name = %s and consumer_name = %s and done_at is null
order by id

-- name: ask_skip
-- Record an operator's decision.
insert into vedur.skip_request (queue_name, consumer_name, ev_id, ev_txid, table_name, tick_id, reason)
values (%s, %s, %s, %s, %s, %s, %s)
returning id

-- name: end_skip
-- What became of it.
update vedur.skip_request set done_at = pg_catalog.clock_timestamp(), outcome = %s where id = %s

-- name: held
-- What quarantined events hold: tables as a whole, else rows. From table to table along the index, because
-- a table that waits may have millions of events.
with recursive tables (table_name) as (
    (
        select q.table_name
        from vedur.quarantine q
        where q.queue_name = %(queue)s and q.table_name is not null
        order by q.table_name
        limit 1
    )
    union all
    select (
        select q.table_name
        from vedur.quarantine q
        where q.queue_name = %(queue)s and q.table_name > t.table_name
        order by q.table_name
        limit 1
    )
    from tables t
    where t.table_name is not null
), known as (
    select t.table_name,
        exists (
            select 1
            from vedur.quarantine q
            where q.queue_name = %(queue)s and q.table_name = t.table_name and q.holds = 'table'
        ) as whole
    from tables t
    where t.table_name is not null
)
select k.table_name, null as row_key, true as whole
from known k
where k.whole
union all
select distinct q.table_name, q.row_key, false
from known k
join vedur.quarantine q on q.queue_name = %(queue)s and q.table_name = k.table_name
where not k.whole and q.holds = 'row'

-- name: put
-- Quarantine events, raw.
insert into vedur.quarantine (
    queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2,
    ev_extra3, ev_extra4, table_name, dest_table, row_key, holds, cause, sqlstate, message, reason, decided_by)
select %(queue)s, %(consumer)s, %(prev_tick)s, %(tick)s, e.ev_id, e.ev_txid, coalesce(e.ev_type, ''), e.ev_data, e.ev_extra1,
    e.ev_extra2, e.ev_extra3, e.ev_extra4, e.table_name, e.dest_table, e.row_key, e.holds, e.cause, e.sqlstate,
    e.message, e.reason, e.decided_by
from unnest(
    %(ev_id)s::bigint[], %(ev_txid)s::bigint[], %(ev_type)s::text[], %(ev_data)s::text[], %(ev_extra1)s::text[],
    %(ev_extra2)s::text[], %(ev_extra3)s::text[], %(ev_extra4)s::text[], %(table)s::text[], %(dest)s::text[],
    %(key)s::text[], %(holds)s::text[], %(cause)s::text[], %(sqlstate)s::text[], %(message)s::text[],
    %(reason)s::text[], %(decided_by)s::text[]
) with ordinality as e (
    ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4, table_name, dest_table, row_key,
    holds, cause, sqlstate, message, reason, decided_by, nr)
order by e.nr

-- name: put_staged
-- Quarantine all staged events of one table, for a table that is held as a whole. Words in braces are names
-- and numbers of ours.
insert into vedur.quarantine (
    queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2,
    ev_extra3, ev_extra4, table_name, dest_table, holds, cause)
select %(queue)s, %(consumer)s, %(prev_tick)s, %(tick)s, ev_id, ev_txid, ev_type, ev_data, ev_extra1,
    rest::json ->> 1, rest::json ->> 2, rest::json ->> 3, %(table)s, %(dest)s, 'table', 'held'
from {log}
where slice in ({slices}) and ev_id > {after} and ev_id < {before} and ev_extra1 = %(table)s
order by ev_id

-- name: staged_rest
-- The staged events in order, without tables that are held as a whole.
select ev_id, ev_txid, ev_type, ev_data, ev_extra1, rest
from {log}
where slice in ({slices}) and ev_id > {after} and ev_id < {before} and ev_extra1 <> all (%s)
order by ev_id

-- name: columns
-- What an event takes along from vedur.quarantine to vedur.quarantine_log.
id, queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3,
ev_extra4, table_name, dest_table, row_key, holds, cause, sqlstate, message, reason, decided_by, quarantined_at

-- name: end_table
-- A table's events leave the quarantine.
with gone as (
    delete from vedur.quarantine where queue_name = %s and table_name = %s returning {columns}
)
insert into vedur.quarantine_log ({columns}, outcome, ended_reason)
select {columns}, %s, %s from gone

-- name: forget_values
-- What was kept of the rows of a table, but not that it happened.
with log as (
    update vedur.quarantine_log
    set ev_data = null, ev_extra2 = null, ev_extra3 = null, ev_extra4 = null, row_key = null, message = null
    where queue_name = %(queue)s and table_name = %(table)s
)
update vedur.repair_log
set row_key = '', old_row = null, new_row = null
where queue_name = %(queue)s and table_name = %(table)s

-- name: end_rows
-- Chosen events leave the quarantine.
with gone as (
    delete from vedur.quarantine where queue_name = %s and id = any (%s::bigint[]) returning {columns}
)
insert into vedur.quarantine_log ({columns}, outcome, ended_reason)
select {columns}, %s, %s from gone

-- name: end_staged
-- Events of a table up to one leave the quarantine, but for some.
with gone as (
    delete from vedur.quarantine
    where queue_name = %s and table_name = %s and id <= %s and id <> all (%s::bigint[])
        and (%s::text[] is null or row_key = any (%s::text[]))
    returning {columns}
)
insert into vedur.quarantine_log ({columns}, outcome, ended_reason)
select {columns}, 'replayed', %s from gone

-- name: list
-- Quarantined events of a queue in their order; each filter counts if it is not null.
select id, table_name, dest_table, row_key, ev_id, ev_txid, ev_type, prev_tick, tick_id, holds, cause, sqlstate,
    message, reason, decided_by, quarantined_at
from vedur.quarantine
where queue_name = %(queue)s
    and (%(tables)s::text[] is null or table_name = any (%(tables)s::text[]))
    and (%(ids)s::bigint[] is null or id = any (%(ids)s::bigint[]))
    and (%(until)s::bigint is null or tick_id <= %(until)s::bigint)
order by id
limit %(limit)s

-- name: count
-- How many there are, by table.
select table_name, count(*) as events, count(distinct row_key) as rows,
    bool_or(holds = 'table') as whole, min(quarantined_at) as since
from vedur.quarantine
where queue_name = %s
group by table_name
order by table_name nulls first

-- name: waiting
-- How many there are of one table.
select count(*)
from vedur.quarantine
where queue_name = %s and table_name = %s

-- name: show
-- One event whole.
select {columns} from vedur.quarantine where queue_name = %s and id = %s

-- name: last_of
-- The newest event of a table up to a tick, and how many of a choice there are. Numbers grow with ticks.
select max(id) as last, count(*) as events
from vedur.quarantine
where queue_name = %(queue)s and table_name = %(table)s
    and (%(keys)s::text[] is null or row_key = any (%(keys)s::text[]))
    and (%(until)s::bigint is null or tick_id <= %(until)s::bigint)

-- name: choice_of
-- Is a table held as a whole, or an event there whose row is not known; and the rows of some events.
select exists (
        select 1
        from vedur.quarantine q
        where q.queue_name = %(queue)s and q.table_name = %(table)s
            and (q.holds = 'table' or q.row_key is null)
    ) as whole,
    array(
        select distinct q.row_key
        from vedur.quarantine q
        where q.queue_name = %(queue)s and q.table_name = %(table)s and q.id = any (%(ids)s::bigint[])
            and q.row_key is not null
    ) as keys

-- name: system_rows
-- Events that are not about rows, in their order.
select id, ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
from vedur.quarantine
where queue_name = %(queue)s and table_name is null
    and (%(ids)s::bigint[] is null or id = any (%(ids)s::bigint[]))
order by id

-- name: lock_replay
-- One replay of a queue's quarantine at a time; until the connection ends.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur.quarantine ' || %s, 0))

-- name: find_event
-- An event by its number: there is no index for that, so this reads the event tables.
select ev_id, ev_txid, ev_type, ev_extra1
from {events}
where ev_id = %s

-- name: applied_by
-- Is a transaction of the provider visible in the snapshot of a tick?
select pg_catalog.txid_visible_in_snapshot(%s, t.tick_snapshot) as applied
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s and t.tick_id = %s

-- name: has_tick
-- Is there such a tick?
select exists (
    select 1
    from pgq.tick t
    join pgq.queue q on q.queue_id = t.tick_queue
    where q.queue_name = %s and t.tick_id = %s)

-- name: errors_readable
-- May this role look at what stops consumers, if there is such a table?
select coalesce(
    pg_catalog.has_schema_privilege('vedur', 'usage')
    and pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.replay_error'), 'select'), false)
from pg_catalog.pg_namespace
where nspname = 'vedur'

-- name: readable
-- May this role look at the quarantine, if there is one?
select coalesce(
    pg_catalog.has_schema_privilege('vedur', 'usage')
    and pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.quarantine'), 'select'), false)
from pg_catalog.pg_namespace
where nspname = 'vedur'
