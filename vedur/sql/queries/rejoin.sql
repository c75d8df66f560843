-- Statements of a rejoin (vedur/catalog/rejoin.py, vedur/ops/rejoin/run.py).

-- name: available
-- Does this database know of it, and may this role write there?
select coalesce(
    pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.rejoin'), 'delete'), false)

-- name: tables
-- Tables that are yet to be made equal. One that was removed and added again is another table.
select r.table_name
from vedur.rejoin r
join londiste.table_info t
    on t.queue_name = r.queue_name and t.table_name = r.table_name and t.nr = r.table_nr
where r.queue_name = %s
    and t.local
    and t.merge_state is null

-- name: begin
-- Take tables in hand.
insert into vedur.rejoin (queue_name, table_name, table_nr)
select t.queue_name, t.table_name, t.nr
from londiste.table_info t
where t.queue_name = %s and t.table_name = any (%s)

-- name: forget
-- A table is equal, or is copied instead.
delete from vedur.rejoin where queue_name = %s and table_name = %s

-- name: forget_all
-- Another rejoin begins.
delete from vedur.rejoin where queue_name = %s

-- name: lock
-- One rejoin of a node at a time; the lock belongs to the session.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur.rejoin ' || %s, 0))

-- name: ticks
-- Ticks that a queue still has: the first and the last.
select min(t.tick_id) as first, max(t.tick_id) as last
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s

-- name: make_tick
-- A tick now, whether or not a ticker runs; null if another one was quicker.
select pgq.ticker(%s)
