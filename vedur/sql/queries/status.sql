-- Statements of the status snapshot (vedur/status). They only read.

-- name: queue_info
-- The newest tick of a node's queue and how old it is; no row on a leaf.
select i.last_tick_id,
       extract(epoch from i.ticker_lag)::float8 as ticker_lag
from pgq.get_queue_info(%s) i

-- name: table_counts
-- Tables: replicated here and in sync; here and not in sync; of the set and not here.
select count(*) filter (where t.local and t.merge_state in ('ok', '?')) as ok,
       count(*) filter (where t.local and coalesce(t.merge_state, '') not in ('ok', '?')) as half,
       count(*) filter (where not t.local) as ignored
from londiste.get_table_list(%s) t

-- name: tick_ages
-- How long ago ticks were written, by this server's clock.
select t.tick_id,
       extract(epoch from pg_catalog.clock_timestamp() - t.tick_time)::float8 as age
from pgq.tick t
     join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s
  and t.tick_id = any (%s)

-- name: software
-- Whose SQL a node has: is it ours, may this role read its version, and which extension of
-- Londiste is there.
select exists (select from pg_catalog.pg_namespace n where n.nspname = 'vedur') as vedur,
       coalesce(
           pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.component'), 'select'),
           false
       ) as readable,
       (select max(e.extversion) from pg_catalog.pg_extension e where e.extname = 'londiste')
           as extension

-- name: vedur_version
-- The version of us that made schema vedur.
select c.version from vedur.component c where c.schema = 'vedur'

-- name: may_read_resident_loss
-- Is it written down here why there is no resident task, and may this role read it?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.resident_loss'), 'select')
    and pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('vedur'), 'usage'), false)

-- name: resident_loss
-- Why a worker does without its resident task, and for how long; no row while it has one, or needs none.
select l.reason,
       extract(epoch from pg_catalog.clock_timestamp() - l.lost_at)::float8 as seconds
from vedur.resident_loss l
where l.queue_name = %s

-- name: has_copy_progress
-- Does a worker of ours keep progress here?
select pg_catalog.to_regclass('vedur.copy_progress') is not null

-- name: may_read_copies
-- Is there progress of first copies that this role may read?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.copy_progress'), 'select')
    and pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('vedur'), 'usage'), false)

-- name: copy_progress
-- First copies that are not finished.
select p.table_name,
       p.step,
       p.step_name,
       p.slices_done,
       p.slices,
       p.rows_done,
       p.rows_estimated,
       p.bytes_done,
       extract(epoch from pg_catalog.clock_timestamp() - p.started_at)::float8 as seconds,
       p.error
from vedur.copy_progress p
where p.queue_name = %s
  and p.finished_at is null
order by p.table_name
