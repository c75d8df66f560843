create or replace function pgq_node.unregister_consumer(
    in i_queue_name text,
    in i_consumer_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Forget the position of a consumer of this node.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer.
-- Returns: 200, whether it existed or not.
-- Writes: pgq_node.local_state.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    delete from pgq_node.local_state s
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;

    ret_code := 200;
    ret_note := 'Consumer ' || i_consumer_name || ' unregistered from ' || i_queue_name;
end;
$$;
