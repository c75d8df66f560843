create or replace function pgq_node.set_consumer_error(
    in i_queue_name text,
    in i_consumer_name text,
    in i_error_msg text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Store why a consumer failed, for status; its next success clears it.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_error_msg - text.
-- Returns: 100 stored; 101 unknown consumer, nothing done.
-- Writes: pgq_node.local_state.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    update pgq_node.local_state s
    set cur_error = i_error_msg
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    if not found then
        ret_code := 101;
        ret_note := 'Consumer not known, ignoring: ' || i_queue_name || '/' || i_consumer_name;
        return;
    end if;

    ret_code := 100;
    ret_note := 'Consumer ' || i_consumer_name || ' error = ' || i_error_msg;
end;
$$;
