create or replace function londiste.local_set_table_state(
    in i_queue_name text,
    in i_table_name text,
    in i_snapshot text,
    in i_merge_state text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Move a table of this node to another state of its copy.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table; i_snapshot - events visible
--             in it are in the table already, or NULL; i_merge_state - state, NULL asks for a
--             new copy.
-- Returns: 200 done; 404 not on this node.
-- Writes: londiste.table_info.
-- Raises: check violation while indexes are stored and the state says that the copy is over.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
begin
    update londiste.table_info t
    set custom_snapshot = i_snapshot,
        merge_state = i_merge_state
    where t.queue_name = i_queue_name
        and t.table_name = _name
        and t.local;
    if not found then
        ret_code := 404;
        ret_note := 'No such table: ' || _name;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Table ' || _name || ' state set to ' || quote_nullable(i_merge_state);
end;
$$;
