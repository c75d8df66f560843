create or replace function londiste.local_set_table_struct(
    in i_queue_name text,
    in i_table_name text,
    in i_dropped_ddl text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Store the statements that bring indexes and constraints back after the copy.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table; i_dropped_ddl - statements,
--             NULL when they have been run.
-- Returns: 200 stored; 404 not on this node.
-- Writes: londiste.table_info.
-- Raises: check violation when the table is not being copied.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
begin
    update londiste.table_info t
    set dropped_ddl = i_dropped_ddl
    where t.queue_name = i_queue_name
        and t.table_name = _name
        and t.local;
    if not found then
        ret_code := 404;
        ret_note := 'no such local table: ' || _name;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Table struct stored';
end;
$$;
