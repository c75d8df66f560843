create or replace function pgq_node.create_node(
    in i_queue_name text,
    in i_node_type text,
    in i_node_name text,
    in i_worker_name text,
    in i_provider_name text,
    in i_global_watermark bigint,
    in i_combined_queue text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Make this database a member of a cascade.
--
-- Parameters: i_queue_name - cascaded queue; i_node_type - root, branch or leaf;
--             i_node_name - this node, its location must be registered; i_worker_name - its
--             worker; i_provider_name - node to read from (branch, leaf); i_global_watermark -
--             first tick of the new node (branch, leaf); i_combined_queue - queue that a
--             leaf is merged into, or NULL.
-- Returns: 200 done; 401 exists already or arguments do not fit the type.
-- Writes: pgq_node.node_info, pgq_node.local_state; root and branch: pgq.queue, pgq.tick and
--         consumer ".global_watermark".
-- Raises: check and foreign key violations for an unknown type, node or provider.
-- ----------------------------------------------------------------------
declare
    _provider text := i_provider_name;
    _start bigint := i_global_watermark;
begin
    if exists (
        select 1
        from pgq_node.node_info n
        where n.queue_name = i_queue_name
    ) then
        ret_code := 401;
        ret_note := 'Node already initialized';
        return;
    end if;

    ret_code := 401;
    if i_node_type = 'root' then
        if coalesce(i_provider_name, i_global_watermark::text, i_combined_queue) is not null then
            ret_note := 'unexpected args for root';
            return;
        end if;
    elsif i_node_type = 'branch' then
        if i_provider_name is null then
            ret_note := 'provider not set for branch';
            return;
        end if;
        if i_global_watermark is null then
            ret_note := 'global watermark not set for branch';
            return;
        end if;
    elsif i_node_type = 'leaf' and i_combined_queue is not null then
        if not exists (
            select 1
            from pgq.queue q
            where q.queue_name = i_combined_queue
        ) then
            ret_note := 'non-existing queue on leaf side: ' || i_combined_queue;
            return;
        end if;
    end if;

    insert into pgq_node.node_info
        (queue_name, node_type, node_name, worker_name, combined_queue)
    values
        (i_queue_name, i_node_type, i_node_name, i_worker_name, i_combined_queue);

    if i_node_type = 'root' then
        perform pgq.create_queue(i_queue_name);
        _provider := i_node_name;
        _start := pgq_node.queue_top(i_queue_name);
        perform pgq.register_consumer_at(i_queue_name, '.global_watermark', _start);
    elsif i_node_type = 'branch' then
        -- The copy of the queue gets its events and ticks from the worker only, with the ids
        -- of the root, beginning at the watermark.
        perform pgq.create_queue(i_queue_name);
        update pgq.queue q
        set queue_external_ticker = true,
            queue_disable_insert = true
        where q.queue_name = i_queue_name;
        if pgq_node.queue_top(i_queue_name) is distinct from _start then
            perform pgq.ticker(i_queue_name, _start, pg_catalog.now(), 1);
        end if;
        perform pgq.register_consumer_at(i_queue_name, '.global_watermark', _start);
    end if;

    insert into pgq_node.local_state
        (queue_name, consumer_name, provider_node, last_tick_id)
    values
        (i_queue_name, i_worker_name, _provider, _start);

    ret_code := 200;
    ret_note := 'Node "' || i_node_name || '" initialized for queue "' || i_queue_name
        || '" with type "' || i_node_type || '"';
end;
$$;
