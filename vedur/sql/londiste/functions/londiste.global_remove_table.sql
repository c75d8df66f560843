create or replace function londiste.global_remove_table(
    in i_queue_name text,
    in i_table_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Forget a table that left the set.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table.
-- Returns: 200 done; 400 not in the set.
-- Writes: londiste.table_info, triggers of the table, indexes of an unfinished copy.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
    _local boolean;
begin
    perform pgq_node.is_root_node(i_queue_name);

    select t.local
    into _local
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = _name
    for update;
    if not found then
        ret_code := 400;
        ret_note := 'Table not found: ' || _name;
        return;
    end if;

    if _local then
        perform londiste.drop_table_triggers(i_queue_name, _name);
        perform londiste.restore_table_struct(i_queue_name, _name);
    end if;
    delete from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = _name;

    ret_code := 200;
    ret_note := 'Table removed: ' || _name;
end;
$$;
