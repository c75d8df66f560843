create or replace function pgq_node.register_subscriber(
    in i_queue_name text,
    in i_remote_node_name text,
    in i_remote_worker_name text,
    in i_custom_tick_id bigint,
    out ret_code integer,
    out ret_note text,
    out global_watermark bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Let another node read this node's queue.
--
-- Parameters: i_queue_name - cascaded queue; i_remote_node_name - subscriber node;
--             i_remote_worker_name - its worker; i_custom_tick_id - start position,
--             NULL means the global watermark.
-- Returns: 200 done, with the global watermark; 401 this node is a leaf; 404 unknown queue.
-- Writes: pgq_node.subscriber_info, pgq subscriptions of the worker and of ".<node>.watermark".
-- Raises: errors of pgq.register_consumer_at when the tick is gone; unique violation when the
--         node is subscribed already; foreign key violation when its location is not registered.
-- ----------------------------------------------------------------------
declare
    _type text;
    _watermark_name text;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown queue: ' || i_queue_name;
        return;
    end if;
    if _type = 'leaf' then
        ret_code := 401;
        ret_note := 'Cannot subscribe to leaf node';
        return;
    end if;

    global_watermark := pgq_node.consumer_tick(i_queue_name, '.global_watermark');
    _watermark_name := '.' || i_remote_node_name || '.watermark';

    perform pgq.register_consumer_at(i_queue_name, _watermark_name, global_watermark);
    perform pgq.register_consumer_at(
        i_queue_name, i_remote_worker_name, coalesce(i_custom_tick_id, global_watermark));

    insert into pgq_node.subscriber_info
        (queue_name, subscriber_node, worker_name, watermark_name)
    values
        (i_queue_name, i_remote_node_name, i_remote_worker_name, _watermark_name);

    ret_code := 200;
    ret_note := 'Subscriber registered: ' || i_remote_node_name;
end;
$$;
