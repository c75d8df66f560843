-- Statements of the first copy (vedur/pipeline/copy, vedur/worker/first_copy, vedur/tables/indexes.py, vedur/catalog).

-- name: relation
-- The table behind schema and name.
select c.oid::bigint as oid,
       c.relkind::text as kind,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') as owned,
       c.relpersistence::text as persistence
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s
  and c.relname = %s
  and c.relkind in ('r', 'p', 'f', 'v', 'm')

-- name: moments_in_utc
-- For rows that a handler sees: the same moment has one text.
set timezone = 'UTC'

-- name: leaves
-- The tables that hold the rows: the table itself, or the leaf partitions of a partitioned one.
-- Partitions are those that the snapshot sees. Sizes are those of now: taken after the snapshot they
-- cover every row that it sees. (pg_partition_tree() would keep its locks until the snapshot's
-- transaction ends, and DDL out for as long.)
with recursive part as (
    select c.oid, c.relkind
    from pg_catalog.pg_class c
    where c.oid = %(oid)s::oid
    union all
    select c.oid, c.relkind
    from part p
    join pg_catalog.pg_inherits i on i.inhparent = p.oid and p.relkind = 'p' and not i.inhdetachpending
    join pg_catalog.pg_class c on c.oid = i.inhrelid
)
select n.nspname as schema,
       c.relname as name,
       c.relkind::text as kind,
       case when c.relkind in ('r', 'm') then coalesce(pg_catalog.pg_relation_size(c.oid), 0) else 0 end as heap_bytes,
       case when c.relkind in ('r', 'm') then coalesce(pg_catalog.pg_table_size(c.oid), 0) else 0 end as all_bytes,
       pg_catalog.current_setting('block_size')::bigint as block_size,
       greatest(c.reltuples, 0)::bigint as rows_estimated
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join part p on p.oid = c.oid and p.relkind <> 'p'
order by n.nspname, c.relname

-- name: stored_tables
-- Sizes of those of some tables that are plain ones, as in `leaves`.
select n.nspname as schema,
       c.relname as name,
       coalesce(pg_catalog.pg_relation_size(c.oid), 0) as heap_bytes,
       coalesce(pg_catalog.pg_table_size(c.oid), 0) as all_bytes,
       pg_catalog.current_setting('block_size')::bigint as block_size,
       greatest(c.reltuples, 0)::bigint as rows_estimated
from unnest(%s::text[], %s::text[]) w (schema_name, table_name)
join pg_catalog.pg_namespace n on n.nspname = w.schema_name
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
where c.relkind = 'r'

-- name: small_tables
-- Those of some tables that are plain ones and not larger than a limit, with their sizes.
select w.name, pg_catalog.pg_table_size(c.oid) as size
from unnest(%(names)s::text[], %(schemas)s::text[], %(tables)s::text[]) w (name, schema_name, table_name)
join pg_catalog.pg_namespace n on n.nspname = w.schema_name
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
where c.relkind = 'r'
  and pg_catalog.pg_table_size(c.oid) <= %(most)s

-- name: shape
-- What tables are made of for this transaction: themselves and their partitions, their files, their columns
-- that are copied. A snapshot of some time ago sees the shape of that time. Names count: tasks
-- read by name, and a table may have been put in the place of another. So does the transaction that attached a
-- partition: between a detach and an attach no trigger of the table sees what is written to it.
with recursive part as (
    select w.nr, c.oid, c.relkind, 0::oid as parent, false as leaving, null::xid as attached
    from unnest(%(schemas)s::text[], %(names)s::text[]) with ordinality w (schema_name, table_name, nr)
    join pg_catalog.pg_namespace n on n.nspname = w.schema_name
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
    union all
    select p.nr, c.oid, c.relkind, p.oid, i.inhdetachpending, i.xmin
    from part p
    join pg_catalog.pg_inherits i on i.inhparent = p.oid and p.relkind = 'p'
    join pg_catalog.pg_class c on c.oid = i.inhrelid
)
select p.nr,
       p.oid::bigint as oid,
       p.parent::bigint as parent,
       pg_catalog.md5(pg_catalog.concat_ws(
           ' ', p.parent, p.leaving, p.attached, c.relkind, c.relfilenode, n.nspname, c.relname, (
               select pg_catalog.string_agg(
                   pg_catalog.concat_ws(' ', a.attnum, a.atttypid, a.attname), ', ' order by a.attnum)
               from pg_catalog.pg_attribute a
               where a.attrelid = p.oid and a.attnum > 0
                 and %(columns)s::jsonb -> (p.nr - 1)::int ? a.attname::text))) as made_of
from part p
join pg_catalog.pg_class c on c.oid = p.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace

-- name: new_part
-- A partition that came after the snapshot: its name if it has rows at all, and the transaction that put it there
-- if it is the one that made it.
select pg_catalog.format('%%I.%%I', n.nspname, c.relname) as name,
       c.relkind = 'p' as divided,
       c.relkind = 'r' and pg_catalog.pg_relation_size(c.oid) = 0 as empty,
       (select i.xmin::text
        from pg_catalog.pg_inherits i
        where i.inhrelid = c.oid
          and not exists (
              select 1
              from pg_catalog.pg_attribute a
              where a.attrelid = c.oid and a.attname = 'tableoid' and a.xmin <> i.xmin)) as made_by
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %s::oid and c.relkind in ('r', 'p')

-- name: filled_when_made
-- Has the transaction that made a partition written rows to it, too, before it put it into its place? Then
-- they stand at its beginning, and no trigger has seen them.
select exists (select 1 from only {name} where ctid < '(1,0)'::tid and xmin = '{made_by}'::xid)

-- name: moments
-- The periods that rows to be copied are in.
select distinct date_trunc({period}, {moment})::text as moment
from {source} as t
where ({condition}
    )
order by 1

-- name: lock_source
-- Reads nothing, but keeps rewrites away until the end of the transaction. LOCK TABLE does not take
-- every kind of partition.
select from {source} limit 0

-- name: same_file
-- Is what the name stands for now, and the file behind it, what the snapshot of this transaction sees?
-- Catalogs are read as of the snapshot, the functions look at the present. The table is locked.
select coalesce(pg_catalog.bool_and(
    pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', n.nspname, c.relname))::oid = c.oid
    and pg_catalog.pg_relation_filenode(c.oid) is not distinct from nullif(c.relfilenode, 0)), false)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s

-- name: holder_alive
-- Is the session that keeps the snapshot still in its transaction?
select pg_catalog.pg_backend_pid()

-- name: forget_slices
-- Waits for a task of an earlier attempt that still holds a slice.
delete from vedur.copy_slice where queue_name = %s and table_name = %s

-- name: add_slice
insert into vedur.copy_slice
    (queue_name, table_name, slice_nr, source_schema, source_name, page_from, page_to)
values (%s, %s, %s, %s, %s, %s, %s)

-- name: claim_slice
-- The next slice that nobody loads; the row lock is the claim and ends with the transaction.
select slice_nr, source_schema, source_name, page_from, page_to
from vedur.copy_slice
where queue_name = %s
  and table_name = %s
  and done_at is null
order by slice_nr
limit 1
for update skip locked

-- name: rename_task
-- Left-over tasks are found by the name of the table that they load.
select pg_catalog.set_config('application_name', %s, false)

-- name: next_at_snapshot
-- The locks of the transaction before go.
commit;
begin isolation level repeatable read, read only;
set transaction snapshot '{snapshot}'

-- name: finish_slice
update vedur.copy_slice
set done_at = clock_timestamp(), rows_done = %s, bytes_done = %s
where queue_name = %s
  and table_name = %s
  and slice_nr = %s

-- name: slice_totals
select count(*)::int as slices,
       count(done_at)::int as slices_done,
       coalesce(sum(rows_done), 0)::bigint as rows_done,
       coalesce(sum(bytes_done), 0)::bigint as bytes_done
from vedur.copy_slice
where queue_name = %s
  and table_name = %s

-- name: running_totals
-- What the slices in the making have moved so far.
select coalesce(sum(p.tuples_processed), 0)::bigint as rows_done,
       coalesce(sum(p.bytes_processed), 0)::bigint as bytes_done
from pg_catalog.pg_stat_progress_copy p
join pg_catalog.pg_stat_activity a on a.pid = p.pid
where p.datname = pg_catalog.current_database()
  and a.application_name = %s

-- name: start_progress
-- A copy that failed begins again: its error stays until it is past the step that failed.
insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name)
values (%s, %s, %s, %s, %s)
on conflict (queue_name, table_name) do update
set dest_table = excluded.dest_table, step = excluded.step, step_name = excluded.step_name,
    slices = 0, slices_done = 0, rows_estimated = null, rows_done = 0,
    bytes_estimated = null, bytes_done = 0,
    started_at = clock_timestamp(), updated_at = clock_timestamp(), finished_at = null,
    error = case when copy_progress.finished_at is null then copy_progress.error end

-- name: wait_progress
-- A part that waits for another before it loads; what it has failed with before is past.
insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name)
values (%(queue)s, %(table)s, %(dest)s, 0, %(waits)s)
on conflict (queue_name, table_name) do update
set dest_table = excluded.dest_table, step = 0, step_name = excluded.step_name,
    slices = 0, slices_done = 0, rows_estimated = null, rows_done = 0,
    bytes_estimated = null, bytes_done = 0,
    started_at = clock_timestamp(), updated_at = clock_timestamp(), finished_at = null, error = null

-- name: set_step
-- For the eyes of an operator: a crash may forget it, so by itself its commit waits for no disk. (Inside a
-- transaction that has more to do the setting would count for all of it: then it is left alone.)
with quick as materialized (
    select case when %(alone)s then pg_catalog.set_config('synchronous_commit', 'off', true) end as set
)
update vedur.copy_progress
set step = %(step)s, step_name = %(step_name)s, updated_at = clock_timestamp(),
    error = case when not %(finished)s and %(step)s <= error_step then error end,
    finished_at = case when %(finished)s then clock_timestamp() end
from quick
where queue_name = %(queue_name)s
  and table_name = %(table_name)s

-- name: set_progress
update vedur.copy_progress
set slices = %(slices)s, slices_done = %(slices_done)s,
    rows_estimated = %(rows_estimated)s, rows_done = %(rows_done)s,
    bytes_estimated = %(bytes_estimated)s, bytes_done = %(bytes_done)s,
    updated_at = clock_timestamp()
where queue_name = %(queue_name)s
  and table_name = %(table_name)s

-- name: set_progress_error
update vedur.copy_progress
set error = %s, error_step = step, updated_at = clock_timestamp()
where queue_name = %s
  and table_name = %s

-- name: end_left_tasks
-- Tasks of a worker that died are of no use to anybody; only one's own may be ended.
select count(pg_catalog.pg_terminate_backend(pid))
from pg_catalog.pg_stat_activity
where application_name = %s
  and datname = pg_catalog.current_database()
  and usename = current_user
  and pid <> pg_catalog.pg_backend_pid()

-- name: indexes
-- Indexes of a table with everything that `create index` alone would not bring back. Indexes that
-- are parts of a partitioned index stay where they are: their names belong to the parent.
select n.nspname as schema,
       i.relname as name,
       pg_catalog.pg_get_indexdef(x.indexrelid) as definition,
       c.conname as constraint_name,
       c.contype::text as constraint_type,
       pg_catalog.pg_get_constraintdef(c.oid) as constraint_definition,
       coalesce(c.condeferrable, false) as is_deferrable,
       coalesce(c.condeferred, false) as is_deferred,
       coalesce(c.contype = 'x' or pg_catalog.pg_get_constraintdef(c.oid) ~ 'WITHOUT OVERLAPS', false)
           as whole_constraint,
       x.indisclustered as clustered,
       x.indisreplident as replica_identity,
       s.spcname as tablespace,
       pg_catalog.array_to_string(i.reloptions, ', ') as options,
       pg_catalog.obj_description(x.indexrelid, 'pg_class') as comment,
       pg_catalog.obj_description(c.oid, 'pg_constraint') as constraint_comment,
       (select coalesce(pg_catalog.json_object_agg(a.attnum, a.attstattarget), '{}')
        from pg_catalog.pg_attribute a
        where a.attrelid = x.indexrelid and a.attstattarget >= 0) as statistics
from pg_catalog.pg_index x
join pg_catalog.pg_class i on i.oid = x.indexrelid
join pg_catalog.pg_namespace n on n.oid = i.relnamespace
left join pg_catalog.pg_constraint c on c.conindid = x.indexrelid and c.contype in ('p', 'u', 'x')
left join pg_catalog.pg_tablespace s on s.oid = i.reltablespace
where x.indrelid = %s::oid
  and i.relkind = 'i'
  and not i.relispartition
order by c.contype is distinct from 'p', i.relname

-- name: index_exists
select exists (
    select 1
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s and c.relkind in ('i', 'I'))

-- name: snapshot
-- Both faces of the transaction's snapshot: to import it, and to judge events by it.
select pg_catalog.pg_export_snapshot() as exported,
       pg_catalog.txid_current_snapshot()::text as visible

-- name: complete_snapshot
-- The snapshot of a load of which every slice is done.
select p.snapshot
from vedur.copy_progress p
where p.queue_name = %s
  and p.table_name = %s
  and exists (
      select 1 from vedur.copy_slice s
      where s.queue_name = p.queue_name and s.table_name = p.table_name and s.slice_nr >= 0)
  and not exists (
      select 1 from vedur.copy_slice s
      where s.queue_name = p.queue_name and s.table_name = p.table_name and s.done_at is null)

-- name: set_snapshot
-- The snapshot that a table is loaded from, and what is marked on the source behind it.
update vedur.copy_progress
set snapshot = %s, mark = %s, updated_at = clock_timestamp()
where queue_name = %s
  and table_name = %s

-- name: consumer_tick
-- Where a consumer stands on the provider, and its subscription.
select s.sub_last_tick, s.sub_id
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %s and c.co_name = %s

-- name: consumer_node
-- The node on which a consumer of this one stands, and whether the worker stands on another.
select s.provider_node as node,
    l.node_location as location,
    exists (
        select from pgq_node.node_info n
            join pgq_node.local_state w on w.queue_name = n.queue_name and w.consumer_name = n.worker_name
        where n.queue_name = s.queue_name and w.provider_node <> s.provider_node
    ) as other
from pgq_node.local_state s
join pgq_node.node_location l on l.queue_name = s.queue_name and l.node_name = s.provider_node
where s.queue_name = %s and s.consumer_name = %s

-- name: provider_node
-- The node from which the worker of this one reads.
select s.provider_node
from pgq_node.node_info n
join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
where n.queue_name = %s

-- name: copies_at
-- Consumers of first copies that stand on a node that the worker does not read from.
select s.consumer_name
from pgq_node.node_info n
join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name <> n.worker_name
where n.queue_name = %s
    and s.provider_node = %s
    and s.consumer_name like '%%.copy.%%'
order by s.consumer_name

-- name: consumers
-- Consumers of the first copies of a table, whatever the workers are called.
select s.consumer_name
from pgq_node.local_state s
where s.queue_name = %(queue)s
    and right(s.consumer_name, length('.copy.' || %(table)s)) = '.copy.' || %(table)s
    and not exists (
        select from pgq_node.node_info n
        where n.queue_name = s.queue_name and n.worker_name = s.consumer_name)
order by s.consumer_name

-- name: relatives
-- The tables that a table inherits from, and all that inherit from one of these (partitions, too).
with recursive above as (
    select c.oid
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s
    union
    select i.inhparent
    from above a
    join pg_catalog.pg_inherits i on i.inhrelid = a.oid
), family as (
    select oid from above
    union
    select i.inhrelid
    from family f
    join pg_catalog.pg_inherits i on i.inhparent = f.oid
)
select n.nspname as schema, c.relname as name
from family f
join pg_catalog.pg_class c on c.oid = f.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace

-- name: still_in_copy
-- Is the table still to be loaded, from this snapshot? The lock makes `remove-table` wait for this
-- transaction's end.
select 1
from londiste.table_info t
where t.queue_name = %(queue)s
  and t.table_name = %(table)s
  and t.local
  and t.merge_state = 'in-copy'
  and exists (
      select 1 from vedur.copy_progress p
      where p.queue_name = t.queue_name and p.table_name = t.table_name and p.snapshot = %(snapshot)s)
for key share of t

-- name: copied_snapshot
-- The snapshot that the slices of a table are loaded from.
select snapshot from vedur.copy_progress where queue_name = %s and table_name = %s

-- name: has_pending_fkeys
-- Are there foreign keys that first copies have dropped, and that are not back yet?
select exists (select 1 from londiste.pending_fkeys)

-- name: restore_fkey
-- The next statement that brings a foreign key back; '' when it is back.
select londiste.restore_table_fkey(%s, %s, true)

-- name: take_slices
-- Slices that nobody has begun go; the copy of the table ends without them.
delete from vedur.copy_slice
where ctid = any (array(
    select ctid
    from vedur.copy_slice
    where queue_name = %s
      and table_name = %s
      and done_at is null
    for update skip locked))

-- name: copies_free
-- Has no worker the first copies of this node in hand? Takes the lock and gives it back.
select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('vedur.copies ' || %s, 0))

-- name: own_copies
-- Take them in hand until the session ends.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur.copies ' || %s, 0))

-- name: hold_table
-- What tells one registration of a table, and one step of its copy, from the next. The lock lets
-- tasks of a copy look at the row, and nobody change it.
select t.merge_state,
       t.custom_snapshot,
       t.table_attrs,
       coalesce(t.dest_table, t.table_name) as dest_table
from londiste.table_info t
where t.queue_name = %s
  and t.table_name = %s
  and t.local
for no key update

-- name: end_load
-- The table is whole again, and its rows are those of the snapshot.
update londiste.table_info
set dropped_ddl = null, custom_snapshot = %s, merge_state = %s
where queue_name = %s
  and table_name = %s
  and local

-- name: end_part
-- The rows of one part of a merged table are there. What its lead has taken away stays recorded.
update londiste.table_info
set custom_snapshot = %s, merge_state = %s
where queue_name = %s
  and table_name = %s
  and local

-- name: end_lead
-- The table has its structure back, with all parts in it.
update londiste.table_info
set dropped_ddl = null
where queue_name = %s
  and table_name = %s
  and local

-- name: loaded_parts
-- Tables with slices of a first copy that are in the table already.
select distinct queue_name, table_name from vedur.copy_slice where done_at is not null

-- name: mark_loaded
-- All slices of a part are loaded. Until it is in sync a row without pages says so: if its copy begins anew, its rows
-- are there.
insert into vedur.copy_slice
    (queue_name, table_name, slice_nr, source_schema, source_name, page_from, done_at)
values (%s, %s, -1, '', '', 0, clock_timestamp())

-- name: forget_loaded
delete from vedur.copy_slice where queue_name = %s and table_name = %s and slice_nr < 0

-- name: may_forget_loaded
-- Does this database keep such rows, and may this role remove them?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.copy_slice'), 'select')
    and pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.copy_slice'), 'delete')
    and pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('vedur'), 'usage'), false)

-- name: forget_loaded_before
-- A table was added (or all parts of one): what an earlier registration of it had loaded says nothing about it.
delete from vedur.copy_slice s
using londiste.table_info t
where s.slice_nr < 0
  and t.queue_name = s.queue_name
  and t.table_name = s.table_name
  and t.local
  and coalesce(t.dest_table, t.table_name) = %(dest)s
  and (%(all)s or (t.queue_name = %(queue)s and t.table_name = %(table)s))

-- name: has_other_rows
-- Has the table rows that do not fulfil the condition of a part?
select exists (select from {dest} as t where ({condition}
    ) is not true)

-- name: lock_table
-- Waits for those who load it, and keeps others out until the transaction ends.
lock table {table} in access exclusive mode

-- name: remove_part
-- The rows of one part of a merged table, where a condition tells them.
delete from {dest} as t where ({condition}
    )

-- name: short_lock
-- For this transaction: rather leave something than wait for it.
set local lock_timeout = '100ms'

-- name: begun_tables
select table_name, finished_at is not null as finished from vedur.copy_progress where queue_name = %s

-- name: forget_progress
delete from vedur.copy_progress where queue_name = %s and table_name = %s
