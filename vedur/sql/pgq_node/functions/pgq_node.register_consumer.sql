create or replace function pgq_node.register_consumer(
    in i_queue_name text,
    in i_consumer_name text,
    in i_provider_node text,
    in i_custom_tick_id bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Give a consumer that runs on this node a place for its position.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_provider_node - node
--             it reads from; i_custom_tick_id - its position.
-- Returns: 200 new; 201 existed, provider and position replaced; 404 unknown queue.
-- Writes: pgq_node.local_state.
-- Raises: foreign key violation for an unknown provider, not-null violation without position.
-- ----------------------------------------------------------------------
begin
    perform 1
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
    for key share;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown queue: ' || i_queue_name;
        return;
    end if;

    update pgq_node.local_state s
    set provider_node = i_provider_node,
        last_tick_id = i_custom_tick_id
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    if found then
        ret_code := 201;
        ret_note := 'Consumer already registered: ' || i_queue_name || '/' || i_consumer_name;
        return;
    end if;

    insert into pgq_node.local_state (queue_name, consumer_name, provider_node, last_tick_id)
    values (i_queue_name, i_consumer_name, i_provider_node, i_custom_tick_id);
    ret_code := 200;
    ret_note := 'Consumer ' || i_consumer_name || ' registered on queue ' || i_queue_name;
end;
$$;
