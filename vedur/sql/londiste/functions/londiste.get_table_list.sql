create or replace function londiste.get_table_list(
    in i_queue_name text,
    out table_name text,
    out local boolean,
    out merge_state text,
    out custom_snapshot text,
    out table_attrs text,
    out dropped_ddl text,
    out copy_role text,
    out copy_pos integer,
    out dest_table text)
returns setof record
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- List the tables of a set as this node sees them.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: one row per table in the order they were added; no rows for an unknown queue.
--          copy_role and copy_pos: see londiste._coordinate_copy.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select t.table_name, t.local, t.merge_state, t.custom_snapshot, t.table_attrs,
            t.dropped_ddl, c.copy_role, c.copy_pos, t.dest_table
        from londiste.table_info t,
            lateral londiste._coordinate_copy(t.queue_name, t.table_name) c
        where t.queue_name = i_queue_name
        order by t.nr;
end;
$$;
