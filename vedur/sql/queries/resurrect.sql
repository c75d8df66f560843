-- Statements of resurrect and lost-events (vedur/catalog/lost_events.py, vedur/ops/resurrect).

-- name: available
-- Does this database know of lost events, and may this role read and forget them?
select coalesce(
    pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.lost_event'), 'delete'), false)

-- name: keep
-- Move what is behind a tick out of the queue.
select vedur.keep_lost_events(%s, %s, %s::uuid)

-- name: events
-- Where the events of a queue are, and the snapshot of a tick.
select pgq.quote_fqname(q.queue_data_pfx) as events, t.tick_snapshot::text as snapshot
from pgq.queue q
join pgq.tick t on t.tick_queue = q.queue_id and t.tick_id = %s
where q.queue_name = %s

-- name: behind
-- Events that a tick has not seen, by what they are about.
select coalesce(nullif(e.ev_extra1, ''), e.ev_type, '') as about, count(*) as n
from {events} e
where e.ev_owner is null
    and e.ev_type is distinct from 'pgq.global-watermark'
    and e.ev_txid between pg_catalog.txid_snapshot_xmin({snapshot}::txid_snapshot) and 9223372036854775807
    and not pg_catalog.txid_visible_in_snapshot(e.ev_txid, {snapshot}::txid_snapshot)
group by 1
order by 1

-- name: list
-- What was kept, in the order of writing.
select id, node_name, epoch::text as epoch, first_tick, tick_id, ev_id, ev_time, ev_txid, ev_type, ev_data,
    ev_extra1, ev_extra2, ev_extra3, ev_extra4, kept_at
from vedur.lost_event
where queue_name = %s and (%s::bigint is null or id > %s)
order by id
limit %s

-- name: forget
-- An operator has done with them.
delete from vedur.lost_event where queue_name = %s

-- name: ticks_before
-- Ticks of a queue up to one of them, the newest first.
select t.tick_id, t.tick_time, t.tick_event_seq
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s and t.tick_id <= %s
order by t.tick_id desc
limit %s

-- name: newest_same_tick
-- The newest of some ticks that another node has written down, too, if there is one: number, time and event number are the same.
select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot::text as tick_snapshot
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
join unnest(%s::bigint[], %s::timestamptz[], %s::bigint[]) as w (id, at, event_seq)
    on w.id = t.tick_id and w.at = t.tick_time and w.event_seq = t.tick_event_seq
where q.queue_name = %s
order by t.tick_id desc
limit 1

-- name: oldest_tick
-- The oldest tick of a queue.
select min(t.tick_id)
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s

-- name: close
-- Close the queue of a deposed root for writers and ticker; and the transaction that does it.
select pg_catalog.txid_current() as txid, d.ret_code, d.ret_note
from pgq_node.demote_root(%s, 1, null) d

-- name: turn
-- The deposed root becomes a branch.
select d.ret_code, d.ret_note, d.last_tick
from pgq_node.demote_root(%s, 3, %s) d

-- name: has_consumer
-- Is a consumer registered?
select exists (
    select
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = %s and c.co_name = %s)

-- name: gravestones
-- Lost roots for which a queue keeps events: consumers whose names end so.
select pg_catalog.left(c.co_name, -pg_catalog.length(g.ending)) as node
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
cross join (select %s::text as queue, %s::text as ending) g
where q.queue_name = g.queue and pg_catalog.right(c.co_name, pg_catalog.length(g.ending)) = g.ending

-- name: copies
-- Consumers of first copies that stand on a queue of this node.
select c.co_name as consumer
from pgq.subscription s
join pgq.queue q on q.queue_id = s.sub_queue
join pgq.consumer c on c.co_id = s.sub_consumer
where q.queue_name = %s and c.co_name like '%%.copy.%%'
order by 1
