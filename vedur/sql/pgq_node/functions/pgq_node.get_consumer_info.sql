create or replace function pgq_node.get_consumer_info(
    in i_queue_name text,
    out consumer_name text,
    out provider_node text,
    out last_tick_id bigint,
    out paused boolean,
    out uptodate boolean,
    out cur_error text)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- List the consumers that run on this node.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: one row per consumer, no rows for an unknown queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select s.consumer_name, s.provider_node, s.last_tick_id,
            s.paused, s.uptodate, s.cur_error
        from pgq_node.local_state s
        where s.queue_name = i_queue_name
        order by s.consumer_name;
end;
$$;
