create or replace function pgq_node.register_location(
    in i_queue_name text,
    in i_node_name text,
    in i_node_location text,
    in i_dead boolean,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Write down where a node can be reached; the root also tells all other nodes.
--
-- Parameters: i_queue_name - cascaded queue; i_node_name - node;
--             i_node_location - connect string, NULL keeps the stored one;
--             i_dead - operator says the node is gone.
-- Returns: 200 done.
-- Writes: pgq_node.node_location; on root event pgq.location-info.
-- Raises: not-null violation when i_dead is NULL.
-- ----------------------------------------------------------------------
begin
    if i_node_location is null then
        update pgq_node.node_location l
        set dead = i_dead
        where l.queue_name = i_queue_name
            and l.node_name = i_node_name;
    else
        insert into pgq_node.node_location as l (queue_name, node_name, node_location, dead)
        values (i_queue_name, i_node_name, i_node_location, i_dead)
        on conflict (queue_name, node_name) do update
        set node_location = excluded.node_location,
            dead = excluded.dead;
    end if;

    if exists (
        select 1
        from pgq_node.node_info n
        where n.queue_name = i_queue_name
            and n.node_type = 'root'
    ) then
        perform pgq.insert_event(
            i_queue_name, 'pgq.location-info', i_node_name,
            i_queue_name, i_node_location, i_dead::text, null);
    end if;

    ret_code := 200;
    ret_note := 'Location registered';
end;
$$;
