-- Statements of first copies that are about many tables at a time (vedur/worker/first_copy/bundle.py,
-- vedur/worker/first_copy/catch_up_together.py). Names come as arrays; what is locked by others is left out and not waited for.

-- name: hold_tables
-- As `hold_table` (copy.sql) for each; rows that somebody else has locked are left out, so that whoever holds some of
-- them never waits for others.
select t.table_name,
       t.merge_state,
       t.custom_snapshot,
       t.table_attrs,
       coalesce(t.dest_table, t.table_name) as dest_table
from londiste.table_info t
where t.queue_name = %s
  and t.table_name = any (%s)
  and t.local
order by t.nr
for no key update skip locked

-- name: set_states
-- By the function of the contract.
select r.ret_code, r.ret_note
from unnest(%(names)s::text[], %(snapshots)s::text[]) w (name, snapshot)
cross join lateral londiste.local_set_table_state(%(queue)s, w.name, w.snapshot, %(state)s) r

-- name: start_progress
-- As `start_progress` (copy.sql).
insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name)
select %(queue)s, w.name, w.dest, %(step)s, %(step_name)s
from unnest(%(names)s::text[], %(dests)s::text[]) w (name, dest)
on conflict (queue_name, table_name) do update
set dest_table = excluded.dest_table, step = excluded.step, step_name = excluded.step_name,
    slices = 0, slices_done = 0, rows_estimated = null, rows_done = 0,
    bytes_estimated = null, bytes_done = 0,
    started_at = clock_timestamp(), updated_at = clock_timestamp(), finished_at = null,
    error = case when copy_progress.finished_at is null then copy_progress.error end

-- name: set_step
-- As `set_step` (copy.sql).
with quick as materialized (
    select case when %(alone)s then pg_catalog.set_config('synchronous_commit', 'off', true) end as set
)
update vedur.copy_progress
set step = %(step)s, step_name = %(step_name)s, updated_at = clock_timestamp(),
    error = case when not %(finished)s and %(step)s <= error_step then error end,
    finished_at = case when %(finished)s then clock_timestamp() end
from quick
where queue_name = %(queue)s
  and table_name = any (%(names)s)

-- name: consumer_nodes
-- The nodes on which consumers of this one stand.
select s.consumer_name, s.provider_node
from pgq_node.local_state s
where s.queue_name = %s and s.consumer_name = any (%s)

-- name: unregister_consumers
-- On the provider.
select pgq.unregister_consumer(%s, w.name) from unnest(%s::text[]) w (name)

-- name: register_consumers
-- On the provider; they hold the queue from its newest tick on.
select pgq.register_consumer(%s, w.name) from unnest(%s::text[]) w (name)

-- name: mark_tick_copies
-- The copies of these consumers go by the tick that the branch shows.
select vedur.mark_tick_copy(%s, w.name) from unnest(%s::text[]) w (name)

-- name: consumer_ticks
-- Where consumers stand on the provider, and their subscriptions.
select c.co_name, s.sub_last_tick, s.sub_id
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %s and c.co_name = any (%s)

-- name: with_troubles
-- Consumers that an event has stopped, or of which a skip was asked.
select w.name
from unnest(%(consumers)s::text[]) w (name)
where exists (
        select from vedur.replay_error e where e.queue_name = %(queue)s and e.consumer_name = w.name)
    or exists (
        select from vedur.skip_request r
        where r.queue_name = %(queue)s and r.consumer_name = w.name and r.done_at is null)

-- name: in_quarantine
-- Tables with events in quarantine.
select distinct q.table_name
from vedur.quarantine q
where q.queue_name = %s and q.table_name = any (%s)

-- name: places
-- Those of some local tables that are plain ones, with no other table of a set in them.
select w.name, c.oid::bigint as oid, pg_catalog.pg_has_role(c.relowner, 'USAGE') as owned
from unnest(%(names)s::text[], %(schemas)s::text[], %(tables)s::text[]) w (name, schema_name, table_name)
join pg_catalog.pg_namespace n on n.nspname = w.schema_name
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
where c.relkind = 'r'
  and not c.relispartition
  and not exists (select from pg_catalog.pg_inherits i where c.oid in (i.inhparent, i.inhrelid))
  and (select count(*)
       from londiste.table_info t
       where t.local and coalesce(t.dest_table, t.table_name) = n.nspname || '.' || c.relname) = 1

-- name: with_fkeys
-- Tables that have foreign keys, or that foreign keys of others lead to.
select x.oid::bigint as oid
from unnest(%s::bigint[]) x (oid)
where exists (
    select from pg_catalog.pg_constraint k where k.contype = 'f' and x.oid in (k.conrelid, k.confrelid))

-- name: lock_destinations
-- As `lock_destination` (admin.sql), always in the same order.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.destination ' || w.name, 0))
from (select u.name from unnest(%s::text[]) u (name) order by u.name collate "C") w

-- name: lock_tables
-- Whoever reads one of them is not waited for.
lock table {tables} in access exclusive mode nowait

-- name: to_empty
-- Tables that are not empty, or on which somebody waits for TRUNCATE. They are locked.
select c.oid::bigint as oid
from pg_catalog.pg_class c
where c.oid = any (%s::oid[])
  and (pg_catalog.pg_relation_size(c.oid) > 0
       or exists (
           select from pg_catalog.pg_trigger g
           where g.tgrelid = c.oid and g.tgtype & 32 <> 0 and g.tgenabled in ('R', 'A')))

-- name: end_left_tasks
-- As `end_left_tasks` (copy.sql).
select count(pg_catalog.pg_terminate_backend(pid))
from pg_catalog.pg_stat_activity
where application_name = any (%s)
  and datname = pg_catalog.current_database()
  and usename = current_user
  and pid <> pg_catalog.pg_backend_pid()

-- name: forget_slices
-- Waits for tasks of an earlier attempt that still hold a slice.
delete from vedur.copy_slice where queue_name = %s and table_name = any (%s)

-- name: add_slices
-- One for each table, all of it.
insert into vedur.copy_slice
    (queue_name, table_name, slice_nr, source_schema, source_name, page_from)
select %(queue)s, w.name, 0, w.schema_name, w.table_name, 0
from unnest(%(names)s::text[], %(schemas)s::text[], %(tables)s::text[]) w (name, schema_name, table_name)

-- name: set_snapshots
-- As `set_snapshot` (copy.sql).
update vedur.copy_progress
set snapshot = %s, mark = %s, updated_at = clock_timestamp()
where queue_name = %s
  and table_name = any (%s)

-- name: claim_slice
-- The next slice of some tables, in the order of their names in the list, that nobody loads.
select s.table_name, s.slice_nr, s.source_schema, s.source_name, s.page_from, s.page_to
from vedur.copy_slice s
where s.queue_name = %(queue)s
  and s.table_name = any (%(names)s)
  and s.done_at is null
order by pg_catalog.array_position(%(names)s::text[], s.table_name)
limit 1
for update skip locked

-- name: set_progress
-- What the slices of tables say of the progress.
update vedur.copy_progress p
set slices = s.slices, slices_done = s.slices_done,
    rows_estimated = s.rows_estimated, rows_done = s.rows_done,
    bytes_estimated = s.bytes_estimated, bytes_done = s.bytes_done,
    updated_at = clock_timestamp()
from (
    select w.name, w.rows_estimated, w.bytes_estimated,
        count(c.slice_nr)::int as slices,
        count(c.done_at)::int as slices_done,
        coalesce(sum(c.rows_done), 0) as rows_done,
        coalesce(sum(c.bytes_done), 0) as bytes_done
    from unnest(%(names)s::text[], %(rows)s::bigint[], %(bytes)s::bigint[]) w (name, rows_estimated, bytes_estimated)
    left join vedur.copy_slice c on c.queue_name = %(queue)s and c.table_name = w.name
    group by w.name, w.rows_estimated, w.bytes_estimated
) s
where p.queue_name = %(queue)s
  and p.table_name = s.name

-- name: loaded
-- Tables of which every slice is done, and the rows that came.
select s.table_name, sum(s.rows_done)::bigint as rows
from vedur.copy_slice s
where s.queue_name = %s and s.table_name = any (%s)
group by s.table_name
having bool_and(s.done_at is not null)

-- name: copied_snapshots
-- The snapshots that slices of tables are loaded from, and where the tables' consumers stand.
select p.table_name, p.snapshot, l.last_tick_id
from vedur.copy_progress p
join unnest(%(names)s::text[], %(consumers)s::text[]) w (name, consumer) on w.name = p.table_name
join pgq_node.local_state l on l.queue_name = p.queue_name and l.consumer_name = w.consumer
where p.queue_name = %(queue)s

-- name: end_loads
-- The tables are whole, and their rows are those of the snapshot.
update londiste.table_info
set custom_snapshot = %s, merge_state = %s
where queue_name = %s
  and table_name = any (%s)
  and local

-- name: positions
-- The ticks that consumers of this node have applied.
select consumer_name, last_tick_id
from pgq_node.local_state
where queue_name = %s and consumer_name = any (%s)

-- name: complete_consumers
-- By the function of the contract; and which tick it is, as `complete_tick` (node.sql).
with noted as (
    insert into vedur.position as p
        (queue_name, consumer_name, provider_node, tick_id, tick_time, tick_event_seq, tick_snapshot)
    select %(queue)s, w.name, %(provider)s, %(tick)s, %(time)s, %(event_seq)s, %(snapshot)s
    from unnest(%(consumers)s::text[]) w (name)
    on conflict (queue_name, consumer_name) do update
    set provider_node = excluded.provider_node,
        tick_id = excluded.tick_id,
        tick_time = excluded.tick_time,
        tick_event_seq = excluded.tick_event_seq,
        tick_snapshot = excluded.tick_snapshot
)
select r.ret_code, r.ret_note
from unnest(%(consumers)s::text[]) w (name)
cross join lateral pgq_node.set_consumer_completed(%(queue)s, w.name, %(tick)s) r

-- name: forget_applied
-- Consumers that begin at another place, or that have ended: which tick they had applied.
delete from vedur.position where queue_name = %s and consumer_name = any (%s)

-- name: known_of_source
-- What this node knows of the source of tables that catch up: the snapshot of the copy, what was marked behind it, the
-- position, and which tick that is.
select w.name,
    t.custom_snapshot,
    p.mark,
    l.last_tick_id as position,
    a.tick_id,
    a.tick_time,
    a.tick_event_seq,
    a.tick_snapshot
from unnest(%(names)s::text[], %(consumers)s::text[]) w (name, consumer)
join londiste.table_info t on t.queue_name = %(queue)s and t.table_name = w.name
join pgq_node.local_state l on l.queue_name = t.queue_name and l.consumer_name = w.consumer
left join vedur.copy_progress p
    on p.queue_name = t.queue_name and p.table_name = t.table_name and p.snapshot = t.custom_snapshot
left join vedur.position a
    on a.queue_name = l.queue_name and a.consumer_name = l.consumer_name
    and a.provider_node = l.provider_node and a.tick_id = l.last_tick_id

-- name: source_now
-- What the source says to that, in one way to it: its newest tick, its next transaction number, and for each copy the
-- mark and the tick of a number.
select w.name,
    n.newest,
    pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) as next_txid,
    exists (select from pgq_node.node_info i where i.queue_name = q.queue_name and i.node_type = 'branch') as of_branch,
    {mark} as mark,
    t.tick_id,
    t.tick_time,
    t.tick_event_seq,
    t.tick_snapshot::text as tick_snapshot
from unnest(%(names)s::text[], %(consumers)s::text[], %(positions)s::bigint[]) w (name, consumer, position)
join pgq.queue q on q.queue_name = %(queue)s
cross join lateral (
    select (select k.tick_id from pgq.tick k where k.tick_queue = q.queue_id order by k.tick_id desc limit 1) as newest
) n
left join pgq.tick t on t.tick_queue = q.queue_id and t.tick_id = w.position

-- name: register_positions
-- By the function of the contract.
select r.ret_code, r.ret_note
from unnest(%(consumers)s::text[], %(ticks)s::bigint[]) w (name, tick)
cross join lateral pgq_node.register_consumer(%(queue)s, w.name, %(provider)s, w.tick) r

-- name: unregister_positions
-- By the function of the contract.
select r.ret_code, r.ret_note
from unnest(%(consumers)s::text[]) w (name)
cross join lateral pgq_node.unregister_consumer(%(queue)s, w.name) r

-- name: with_stages
-- Which of these beginnings have names of staging tables?
select distinct w.prefix
from unnest(%s::text[]) w (prefix)
join pg_catalog.pg_class c on starts_with(c.relname, w.prefix) and c.relkind = 'r'
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('vedur_work', 'vedur')

-- name: touched
-- The tables that events of a range are about; empty for one whose type alone names its table.
select distinct coalesce(ev_extra1, '') as name from {events} where {slice}

-- name: forget_loaded
-- As `forget_loaded` (copy.sql).
delete from vedur.copy_slice where queue_name = %s and table_name = any (%s) and slice_nr < 0
