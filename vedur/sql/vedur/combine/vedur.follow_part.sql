create or replace function vedur.follow_part(
    in i_combined_name text,
    in i_part_name text,
    in i_tick_id bigint,
    in i_tick_time timestamptz,
    in i_tick_event_seq bigint,
    in i_tick_snapshot text,
    in i_provider_node text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- On a branch of a combined queue, in the transaction of a batch that has event pgq.tick-id: the tables of this node have the part
-- up to that tick now. How far its worker has come with the part's own events stays written down.
--
-- Parameters: i_combined_name - combined queue; i_part_name - part that is merged into it; i_tick_id - tick of the part; the rest -
--             which tick that is, and of which node; null where Londiste's own worker has written the event.
-- Returns: 200 moved; 201 no such part here, or this node is no branch of the combined queue; 401 as
--          pgq_node.set_partition_watermark.
-- Writes: pgq_node.local_state, vedur.position, vedur.part_wait.
-- Raises: not-null violation without tick.
-- ----------------------------------------------------------------------
declare
    _part record;
begin
    select p.worker_name, s.last_tick_id into _part
    from pgq_node.node_info p
    join pgq_node.node_info c on c.queue_name = p.combined_queue
    join pgq_node.local_state s on s.queue_name = p.queue_name and s.consumer_name = p.worker_name
    where p.queue_name = i_part_name
        and p.combined_queue = i_combined_name
        and p.node_type = 'leaf'
        and c.node_type = 'branch'
    for no key update of s;
    if found then
        insert into vedur.part_wait (queue_name, handled_tick)
        values (i_part_name, _part.last_tick_id)
        on conflict (queue_name) do update set told = true where not part_wait.told;
    end if;
    select w.ret_code, w.ret_note into ret_code, ret_note
    from pgq_node.set_partition_watermark(i_combined_name, i_part_name, i_tick_id) w;
    if ret_code <> 200 then
        return;
    end if;
    if i_tick_time is null or i_tick_event_seq is null or i_tick_snapshot is null or i_provider_node is null then
        delete from vedur.position p where p.queue_name = i_part_name and p.consumer_name = _part.worker_name;
        return;
    end if;
    insert into vedur.position as p
        (queue_name, consumer_name, provider_node, tick_id, tick_time, tick_event_seq, tick_snapshot)
    values
        (i_part_name, _part.worker_name, i_provider_node, i_tick_id, i_tick_time, i_tick_event_seq, i_tick_snapshot)
    on conflict (queue_name, consumer_name) do update
    set provider_node = excluded.provider_node,
        tick_id = excluded.tick_id,
        tick_time = excluded.tick_time,
        tick_event_seq = excluded.tick_event_seq,
        tick_snapshot = excluded.tick_snapshot;
end;
$$;
