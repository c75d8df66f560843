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
with waited as (delete from vedur.part_wait where queue_name = %(queue)s)
delete from vedur.position where queue_name = %(queue)s

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

-- name: snapshot_of_tick
-- What a tick has seen, or the oldest one after it if that one is gone; and where the events are.
select pgq.quote_fqname(q.queue_data_pfx) as events,
    (
        select t.tick_snapshot::text
        from pgq.tick t
        where t.tick_queue = q.queue_id and t.tick_id >= %s
        order by t.tick_id
        limit 1
    ) as snapshot
from pgq.queue q
where q.queue_name = %s

-- name: told_to_forget
-- Is there an event behind a snapshot that tells nodes to forget a name?
select exists (
    select from {events} e
    where e.ev_txid between pg_catalog.txid_snapshot_xmin(%(snapshot)s::txid_snapshot) and 9223372036854775807
        and not pg_catalog.txid_visible_in_snapshot(e.ev_txid, %(snapshot)s::txid_snapshot)
        and e.ev_type = 'pgq.unregister-location'
        and e.ev_data = %(name)s
)

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

-- name: lock_position
-- The one lock of a consumer's position, until the transaction ends (vedur/node/position.py).
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.worker ' || %s || ' ' || %s, 0))

-- name: lock_position_row
-- The row of the position itself, for workers that do not know the lock above: its tick, as it is now.
select vedur.lock_position(%s, %s)

-- name: position
-- The tick that a consumer of this node has applied.
select last_tick_id
from pgq_node.local_state
where queue_name = %s and consumer_name = %s

-- name: worker_name
-- Who applies the events of a queue on this node.
select worker_name
from pgq_node.node_info
where queue_name = %s

-- name: worker_position
-- The tick that the worker of this node has applied.
select s.last_tick_id
from pgq_node.node_info n
join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
where n.queue_name = %s

-- name: newest_tick
-- The newest tick of a queue. With a join the server would read all ticks to sort them.
select t.tick_id
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
order by t.tick_id desc
limit 1

-- name: wake_worker
-- Say the newest tick of a queue again, as a ticker does. A payload must be shorter than 8000 bytes.
select pg_catalog.pg_notify('pgq_tick', q.queue_name || ':' || (
    select t.tick_id from pgq.tick t where t.tick_queue = q.queue_id order by t.tick_id desc limit 1))
from pgq.queue q
where q.queue_name = %s
    and pg_catalog.octet_length(q.queue_name) < 7900
    and exists (select from pgq.tick t where t.tick_queue = q.queue_id)

-- name: notice_dead_peer
-- The session of a worker or a command whose machine has gone ends after a minute, and its lock with it.
set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3;
set tcp_user_timeout = 60000

-- name: lock_move
-- One change of a node's provider at a time; the lock belongs to the session.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur.move ' || %s, 0))

-- name: unlock_move
-- Give it back.
select pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended('vedur.move ' || %s, 0))

-- name: hold_place
-- Let no change of this node's provider begin; who holds it keeps out only those.
select pg_catalog.pg_try_advisory_lock_shared(pg_catalog.hashtextextended('vedur.move ' || %s, 0))

-- name: release_place
-- Give it back.
select pg_catalog.pg_advisory_unlock_shared(pg_catalog.hashtextextended('vedur.move ' || %s, 0))

-- name: consumer_paused
-- Has an operator, or a move, paused a consumer of this node?
select paused from pgq_node.local_state where queue_name = %s and consumer_name = %s

-- name: knows_location
-- Does this node know how to reach a member?
select exists (select from pgq_node.node_location where queue_name = %s and node_name = %s)

-- name: lock_subscriptions
-- One command at a time subscribes a node here, until the end of its transaction.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.subscribe ' || %s, 0))

-- name: whose_consumer
-- Is there a consumer of a name in this queue, is it a node's, and is it another node's?
select exists (
        select from pgq.subscription s
        join pgq.queue q on q.queue_id = s.sub_queue
        join pgq.consumer c on c.co_id = s.sub_consumer
        where q.queue_name = %(queue)s and c.co_name = %(consumer)s
    ) as there,
    exists (
        select from pgq_node.subscriber_info i
        where i.queue_name = %(queue)s and i.worker_name = %(consumer)s and i.subscriber_node = %(node)s
    ) as own,
    (
        select min(i.subscriber_node) from pgq_node.subscriber_info i
        where i.queue_name = %(queue)s and i.worker_name = %(consumer)s and i.subscriber_node <> %(node)s
    ) as other

-- name: register_consumer_at
-- Register a plain consumer at a tick, or move it there.
select pgq.register_consumer_at(%s, %s, %s)

-- name: hold_back
-- Let a consumer that is ahead of a tick go back to it, or to the first tick after it that is left; no row where it is not
-- ahead of that.
select f.tick, pgq.register_consumer_at(q.queue_name, c.co_name, f.tick)
from pgq.queue q
join pgq.subscription s on s.sub_queue = q.queue_id
join pgq.consumer c on c.co_id = s.sub_consumer
cross join lateral (
    select min(t.tick_id) as tick from pgq.tick t where t.tick_queue = q.queue_id and t.tick_id >= %(tick)s
) f
where q.queue_name = %(queue)s and c.co_name = %(consumer)s and f.tick < s.sub_last_tick

-- name: unregister_consumer
-- A plain consumer reads here no longer.
select pgq.unregister_consumer(%s, %s)

-- name: plain_consumers
-- Consumers of a queue that are no node's worker or watermark, no first copy and no gravestone; where they stand.
select c.co_name as consumer, s.sub_last_tick as tick
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %s
    and c.co_name not like '.%%watermark'
    and c.co_name not like '%%.copy.%%'
    and c.co_name not like '%%.gravestone'
    and not exists (
        select from pgq_node.subscriber_info i
        where i.queue_name = q.queue_name and c.co_name in (i.worker_name, i.watermark_name))
order by 1

-- name: can_rename
-- Does this database have the function that renames a node?
select pg_catalog.to_regprocedure('vedur.rename_node(text,text,text,integer)') is not null

-- name: events_between
-- Event numbers used between two ticks of a queue; null where one of them is not there.
select (
    select t.tick_event_seq from pgq.tick t where t.tick_queue = q.queue_id and t.tick_id = %s
) - (
    select t.tick_event_seq from pgq.tick t where t.tick_queue = q.queue_id and t.tick_id = %s
)
from pgq.queue q
where q.queue_name = %s
