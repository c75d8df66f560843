create or replace function pgq_node.set_consumer_completed(
    in i_queue_name text,
    in i_consumer_name text,
    in i_tick_id bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Store a consumer's position; called in the transaction that carries the data.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_tick_id - tick done.
-- Returns: 100 stored and the last error cleared; 404 unknown consumer.
-- Writes: pgq_node.local_state.
-- Raises: not-null violation without tick.
-- ----------------------------------------------------------------------
begin
    update pgq_node.local_state s
    set last_tick_id = i_tick_id,
        cur_error = null
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    if not found then
        ret_code := 404;
        ret_note := 'Consumer not known: ' || i_queue_name || '/' || i_consumer_name;
        return;
    end if;

    ret_code := 100;
    ret_note := 'Consumer ' || i_consumer_name || ' completed tick = ' || i_tick_id;
end;
$$;
