-- Statements about reigns and their epochs (vedur/node/epoch.py).

-- name: keeps
-- Does this database have the table of reigns?
select pg_catalog.to_regclass('vedur.reign') is not null

-- name: reigns
-- The reigns that this node knows.
select epoch::text as epoch, serial, root_node, first_tick, previous::text as previous, kind
from vedur.reign
where queue_name = %s
order by serial

-- name: lock_node
-- The node stays what it is until the transaction ends.
select node_type from pgq_node.node_info where queue_name = %s for update

-- name: write
-- Another node's reigns, as it has them.
insert into vedur.reign (queue_name, epoch, serial, root_node, first_tick, previous, kind)
values (%s, %s::uuid, %s, %s, %s, %s::uuid, %s)
on conflict do nothing

-- name: forget
-- A node of this database has ended, or begins.
with barred as (
    delete from vedur.barred_epoch where queue_name = %(queue)s
), deposed as (
    delete from vedur.deposed where queue_name = %(queue)s
)
delete from vedur.reign where queue_name = %(queue)s

-- name: begin
-- A reign begins on this node.
select vedur.begin_reign(%s, %s, %s::uuid, %s)

-- name: deposed
-- Who has replaced this root?
select epoch::text as epoch, root_node, first_tick
from vedur.deposed
where queue_name = %s
