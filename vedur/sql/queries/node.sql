-- Statements of the node layer (vedur/node).

-- name: has_schema
-- Is pgq_node installed here?
select pg_catalog.to_regclass('pgq_node.node_info') is not null

-- name: has_vedur
-- Did Vedur install anything here?
select exists (select from pg_catalog.pg_namespace where nspname = 'vedur')

-- name: keeps_ticks
-- Does this database keep which tick was applied, and may this role write it down?
select coalesce(
    pg_catalog.has_table_privilege(t.name, 'select')
        and pg_catalog.has_table_privilege(t.name, 'insert')
        and pg_catalog.has_table_privilege(t.name, 'update')
        and pg_catalog.has_table_privilege(t.name, 'delete'),
    false)
from (select pg_catalog.to_regclass('vedur.position') as name) t

-- name: applied_tick
-- The tick that a consumer has applied.
select p.tick_id, p.tick_time, p.tick_event_seq, p.tick_snapshot, p.provider_node
from vedur.position p
where p.queue_name = %s and p.consumer_name = %s

-- name: complete_tick
-- Store a position and which tick it is, in one way to the server.
with noted as (
    insert into vedur.position as p
        (queue_name, consumer_name, provider_node, tick_id, tick_time, tick_event_seq, tick_snapshot)
    values (%(queue)s, %(consumer)s, %(provider)s, %(tick)s, %(time)s, %(event_seq)s, %(snapshot)s)
    on conflict (queue_name, consumer_name) do update
    set provider_node = excluded.provider_node,
        tick_id = excluded.tick_id,
        tick_time = excluded.tick_time,
        tick_event_seq = excluded.tick_event_seq,
        tick_snapshot = excluded.tick_snapshot
)
select * from pgq_node.set_consumer_completed(%(queue)s, %(consumer)s, %(tick)s)

-- name: forget_position
-- A node of this database has ended, or begins.
delete from vedur.position where queue_name = %s

-- name: forget_rejoin
-- The same for tables that it had in hand.
delete from vedur.rejoin where queue_name = %s

-- name: place
-- Where a consumer stands in the provider's queue, what it has open, how many event numbers lie ahead of it, and the
-- tick of a number.
select s.sub_last_tick,
    s.sub_next_tick,
    t.tick_id,
    t.tick_time,
    t.tick_event_seq,
    t.tick_snapshot::text as tick_snapshot,
    (
        select n.tick_event_seq
        from pgq.tick n
        where n.tick_queue = q.queue_id
        order by n.tick_id desc
        limit 1
    ) - l.tick_event_seq as ahead
from pgq.queue q
cross join pgq.consumer c
join pgq.subscription s on s.sub_queue = q.queue_id and s.sub_consumer = c.co_id
left join pgq.tick l on l.tick_queue = q.queue_id and l.tick_id = s.sub_last_tick
left join pgq.tick t on t.tick_queue = q.queue_id and t.tick_id = %s
where q.queue_name = %s and c.co_name = %s

-- name: tick
-- One tick of a queue.
select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot::text as tick_snapshot
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s and t.tick_id = %s

-- name: counter
-- The next transaction number of this server, and the highest one that two ticks of a queue have seen: its oldest, which
-- is from before a restore, and one of a number. Of all ticks there may be very many.
select pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) as now,
    (
        select max(pg_catalog.txid_snapshot_xmax(t.tick_snapshot))
        from pgq.tick t
        where t.tick_queue = q.queue_id
            and t.tick_id in (
                %s, (select o.tick_id from pgq.tick o where o.tick_queue = q.queue_id order by o.tick_id limit 1))
    ) as tick
from pgq.queue q
where q.queue_name = %s
