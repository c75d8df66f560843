create or replace function pgq_node.get_queue_locations(
    in i_queue_name text,
    out node_name text,
    out node_location text,
    out dead boolean)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- List all known members of a cascade.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: one row per node, no rows for an unknown queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select l.node_name, l.node_location, l.dead
        from pgq_node.node_location l
        where l.queue_name = i_queue_name
        order by l.node_name;
end;
$$;
