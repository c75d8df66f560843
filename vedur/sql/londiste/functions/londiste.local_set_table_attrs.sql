create or replace function londiste.local_set_table_attrs(
    in i_queue_name text,
    in i_table_name text,
    in i_table_attrs text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Replace the settings of a table of this node.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table; i_table_attrs - urlencoded
--             pairs, or NULL.
-- Returns: 200 done; 404 not on this node.
-- Writes: londiste.table_info.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
begin
    update londiste.table_info t
    set table_attrs = i_table_attrs
    where t.queue_name = i_queue_name
        and t.table_name = _name
        and t.local;
    if not found then
        ret_code := 404;
        ret_note := 'no such local table: ' || _name;
        return;
    end if;

    ret_code := 200;
    ret_note := _name || ': Table attributes stored';
end;
$$;
