create or replace function pgq_node.get_worker_state(
    in i_queue_name text,
    out ret_code integer,
    out ret_note text,
    out node_type text,
    out node_name text,
    out completed_tick bigint,
    out provider_node text,
    out provider_location text,
    out paused boolean,
    out uptodate boolean,
    out cur_error text,
    out worker_name text,
    out global_watermark bigint,
    out local_watermark bigint,
    out local_queue_top bigint,
    out combined_queue text,
    out combined_type text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- What the worker of this node needs to know before each batch.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: 100 and the row; 404 unknown queue or worker. On a leaf global_watermark and
--          local_queue_top are NULL and local_watermark is the worker's position.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    select n.node_type, n.node_name, n.worker_name
    into node_type, node_name, worker_name
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown queue: ' || i_queue_name;
        return;
    end if;

    select s.last_tick_id, s.provider_node, l.node_location, s.paused, s.uptodate, s.cur_error,
        n.combined_queue, c.node_type
    into completed_tick, provider_node, provider_location, paused, uptodate, cur_error,
        combined_queue, combined_type
    from pgq_node.node_info n
        join pgq_node.local_state s
            on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
        join pgq_node.node_location l
            on l.queue_name = s.queue_name and l.node_name = s.provider_node
        left join pgq_node.node_info c on c.queue_name = n.combined_queue
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown consumer: ' || i_queue_name || '/' || worker_name;
        return;
    end if;

    if node_type = 'leaf' then
        local_watermark := completed_tick;
    else
        global_watermark := pgq_node.consumer_tick(i_queue_name, '.global_watermark');
        local_watermark := pgq_node.lowest_tick(i_queue_name);
        local_queue_top := pgq_node.queue_top(i_queue_name);
    end if;
    ret_code := 100;
    ret_note := 'Ok';
end;
$$;
