create or replace function pgq_node.set_global_watermark(
    in i_queue_name text,
    in i_watermark bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Move the lowest tick that any node of the cascade needs.
--
-- Parameters: i_queue_name - cascaded queue; i_watermark - tick id, NULL on the root means
--             the lowest position of all its consumers.
-- Returns: 200 moved, or skipped on a branch that does not have the tick; 100 ignored on a
--          leaf; 404 unknown queue; 500 NULL on a branch.
-- Writes: pgq subscription of ".global_watermark"; on root event pgq.global-watermark, and the
--         position of its worker, which applies nothing and would seem to be far behind.
-- Raises: errors of pgq.register_consumer_at when the root does not have the tick.
-- ----------------------------------------------------------------------
declare
    _type text;
    _watermark bigint := i_watermark;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Queue ' || i_queue_name || ' not found';
        return;
    end if;
    if _type = 'leaf' then
        ret_code := 100;
        ret_note := 'Ignoring global watermark in leaf';
        return;
    end if;

    if _type = 'root' then
        _watermark := coalesce(_watermark, pgq_node.lowest_tick(i_queue_name));
        perform pgq.insert_event(
            i_queue_name, 'pgq.global-watermark', _watermark::text,
            i_queue_name, null, null, null);
    elsif _watermark is null then
        ret_code := 500;
        ret_note := 'bad usage: wm=null on branch node';
        return;
    elsif not exists (
        select 1
        from pgq.tick t
            join pgq.queue q on q.queue_id = t.tick_queue
        where q.queue_name = i_queue_name
            and t.tick_id = _watermark
    ) then
        -- Older than this node's copy of the queue, or its event is repeated; a later watermark will fit.
        ret_code := 200;
        ret_note := 'Skipping global watermark update to ' || _watermark;
        return;
    end if;

    perform pgq.register_consumer_at(i_queue_name, '.global_watermark', _watermark);
    if _type = 'root' then
        update pgq_node.local_state s
        set last_tick_id = _watermark
        from pgq_node.node_info n
        where n.queue_name = i_queue_name
            and s.queue_name = n.queue_name
            and s.consumer_name = n.worker_name;
    end if;
    ret_code := 200;
    ret_note := 'Global watermark set to ' || _watermark;
end;
$$;
