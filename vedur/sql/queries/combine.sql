-- Statements by which parts are merged into a combined queue, and follow it.

-- name: can_combine
-- Does this database have what a part is merged with?
select pg_catalog.to_regprocedure(
    'vedur.publish_part(text,integer,bigint[],bigint,bigint,timestamptz,bigint,text,text)'
) is not null

-- name: publish
-- Writes the events of a batch of a part into the combined queue, and which tick it ends with; in the transaction of the batch.
select vedur.publish_part(
    %(part)s, %(slot)s, %(slices)s::bigint[], %(events)s, %(tick)s, %(time)s, %(event_seq)s, %(snapshot)s, %(provider)s)

-- name: handled_tick
-- Up to which tick the worker of a part that waits has carried out its events about the set.
select handled_tick from vedur.part_wait where queue_name = %s

-- name: begin_waiting
-- A new part of a combined branch: its position is known when the combined queue tells of it.
insert into vedur.part_wait (queue_name, handled_tick, told) values (%s, %s, false)

-- name: set_handled_tick
-- It has come further.
insert into vedur.part_wait as w (queue_name, handled_tick)
values (%s, %s)
on conflict (queue_name) do update set handled_tick = excluded.handled_tick

-- name: end_waiting
-- The part does not wait any more.
delete from vedur.part_wait where queue_name = %s

-- name: set_events
-- Events of a range that are about the nodes, tables and sequences of the set.
select ev_id, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
from {events}
where {slice} and ev_owner is null and (ev_type like 'pgq.%' or ev_type like 'londiste.%')
order by ev_id

-- name: parts_not_copied
-- Parts of a combined queue of which a table is not whole here: its first copy is not done, or events that are in it still come.
select t.queue_name, t.table_name
from londiste.table_info t
join pgq_node.node_info n on n.queue_name = t.queue_name
where n.combined_queue = %s
    and n.node_type = 'leaf'
    and t.local
    and (t.merge_state is distinct from 'ok' or t.custom_snapshot is not null)
order by t.queue_name

-- name: parts_quarantined
-- Parts of a combined queue of which events of a table are in quarantine here: nodes below have got them, and the table lacks them.
select distinct q.queue_name, q.table_name
from vedur.quarantine q
join pgq_node.node_info n on n.queue_name = q.queue_name
where n.combined_queue = %s and n.node_type = 'leaf' and q.table_name is not null
order by q.queue_name

-- name: parts
-- Parts that are merged into a combined queue here: their positions, and the tables that they bring.
select n.queue_name, n.worker_name, s.last_tick_id, s.paused,
    not exists (select 1 from vedur.part_wait w where w.queue_name = n.queue_name and not w.told) as told,
    coalesce((
        select pg_catalog.array_agg(t.table_name order by t.table_name)
        from londiste.table_info t
        where t.queue_name = n.queue_name and t.local
    ), '{}') as tables
from pgq_node.node_info n
join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
where n.combined_queue = %s and n.node_type = 'leaf'
order by n.queue_name
