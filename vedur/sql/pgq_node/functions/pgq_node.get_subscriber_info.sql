create or replace function pgq_node.get_subscriber_info(
    in i_queue_name text,
    out node_name text,
    out worker_name text,
    out node_watermark bigint)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- List the nodes that read this node's queue.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: one row per subscriber with the lowest tick needed below it; no rows for an
--          unknown queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select s.subscriber_node, s.worker_name,
            pgq_node.consumer_tick(s.queue_name, s.watermark_name)
        from pgq_node.subscriber_info s
        where s.queue_name = i_queue_name
        order by s.subscriber_node;
end;
$$;
