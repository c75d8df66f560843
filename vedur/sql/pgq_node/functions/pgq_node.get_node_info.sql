create or replace function pgq_node.get_node_info(
    in i_queue_name text,
    out ret_code integer,
    out ret_note text,
    out node_type text,
    out node_name text,
    out global_watermark bigint,
    out local_watermark bigint,
    out provider_node text,
    out provider_location text,
    out combined_queue text,
    out combined_type text,
    out worker_name text,
    out worker_paused boolean,
    out worker_uptodate boolean,
    out worker_last_tick bigint,
    out node_attrs text,
    out target_for text[])
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Everything an operator asks about this node.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: 100 and the row; 404 with the rest NULL. On a leaf global_watermark is NULL and
--          local_watermark the worker's position; on the root worker_last_tick is the newest
--          tick; target_for lists queues merged into this one, NULL when there are none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    select 100, 'Ok', n.node_type, n.node_name,
        s.provider_node, l.node_location,
        n.combined_queue, c.node_type, n.worker_name,
        s.paused, s.uptodate, s.last_tick_id, n.node_attrs,
        (select array_agg(p.queue_name order by p.queue_name)
         from pgq_node.node_info p
         where p.combined_queue = n.queue_name)
    into ret_code, ret_note, node_type, node_name,
        provider_node, provider_location,
        combined_queue, combined_type, worker_name,
        worker_paused, worker_uptodate, worker_last_tick, node_attrs,
        target_for
    from pgq_node.node_info n
        left join pgq_node.node_info c on c.queue_name = n.combined_queue
        left join pgq_node.local_state s
            on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
        left join pgq_node.node_location l
            on l.queue_name = s.queue_name and l.node_name = s.provider_node
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown queue: ' || i_queue_name;
        return;
    end if;

    if node_type = 'leaf' then
        local_watermark := worker_last_tick;
        return;
    end if;

    if node_type = 'root' then
        worker_last_tick := pgq_node.queue_top(i_queue_name);
    end if;
    global_watermark := pgq_node.consumer_tick(i_queue_name, '.global_watermark');
    local_watermark := pgq_node.lowest_tick(i_queue_name);
end;
$$;
