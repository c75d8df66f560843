create or replace function pgq_node.change_consumer_provider(
    in i_queue_name text,
    in i_consumer_name text,
    in i_new_provider text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Let a consumer of this node read from another node; tick ids are the same everywhere.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_new_provider - node.
-- Returns: 200 changed; 404 unknown node or consumer.
-- Writes: pgq_node.local_state (uptodate becomes false).
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    if not exists (
        select 1
        from pgq_node.node_location l
        where l.queue_name = i_queue_name
            and l.node_name = i_new_provider
    ) then
        ret_code := 404;
        ret_note := 'New node not found: ' || i_new_provider;
        return;
    end if;

    update pgq_node.local_state s
    set provider_node = i_new_provider,
        uptodate = false
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown consumer: ' || i_queue_name || '/' || i_consumer_name;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Consumer provider node set to : ' || i_new_provider;
end;
$$;
