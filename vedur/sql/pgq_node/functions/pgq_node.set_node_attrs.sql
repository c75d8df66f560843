create or replace function pgq_node.set_node_attrs(
    in i_queue_name text,
    in i_node_attrs text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Replace the free attributes of this node.
--
-- Parameters: i_queue_name - cascaded queue; i_node_attrs - urlencoded pairs, or NULL.
-- Returns: 200 done; 404 no node here.
-- Writes: pgq_node.node_info.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    update pgq_node.node_info n
    set node_attrs = i_node_attrs
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Node not found';
        return;
    end if;

    ret_code := 200;
    ret_note := 'Node attributes updated';
end;
$$;
