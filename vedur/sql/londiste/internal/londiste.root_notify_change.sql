create or replace function londiste.root_notify_change(
    i_queue_name text,
    i_ev_type text,
    i_ev_data text)
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tell all nodes about a change of the set.
--
-- Parameters: i_queue_name - cascaded queue; i_ev_type, i_ev_data - the event.
-- Returns: 1.
-- Writes: one event.
-- Raises: "only root node can send events"; "queue does not exist".
-- ----------------------------------------------------------------------
begin
    if not pgq_node.is_root_node(i_queue_name) then
        raise exception 'only root node can send events';
    end if;
    perform pgq.insert_event(i_queue_name, i_ev_type, i_ev_data);
    return 1;
end;
$$;
