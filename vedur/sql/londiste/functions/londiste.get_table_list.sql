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
        -- The worker asks for every batch, and a table that is alone has no role: only the others
        -- are looked at one by one, each of which reads the whole list.
        with shared as materialized (
            select coalesce(s.dest_table, s.table_name) as dest
            from londiste.table_info s
            where s.local
            group by 1
            having count(*) > 1
        )
        select t.table_name, t.local, t.merge_state, t.custom_snapshot, t.table_attrs,
            t.dropped_ddl, c.copy_role, coalesce(c.copy_pos, 0), t.dest_table
        from londiste.table_info t
            left join lateral (
                select r.copy_role, r.copy_pos
                from londiste._coordinate_copy(t.queue_name, t.table_name) r
                where coalesce(t.dest_table, t.table_name) in (select h.dest from shared h)
                offset 0  -- or the function is called first
            ) c on true
        where t.queue_name = i_queue_name
        order by t.nr;
end;
$$;
