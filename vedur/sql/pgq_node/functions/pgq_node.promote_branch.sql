create or replace function pgq_node.promote_branch(
    in i_queue_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Turn a branch into the root: open the queue for writers and the ticker.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: 200 done; 301 not a branch; 404 no node here.
-- Writes: pgq.queue, pgq_node.node_info, pgq_node.local_state.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _node record;
begin
    select n.node_type, n.node_name, n.worker_name
    into _node
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
    for no key update;
    if not found then
        ret_code := 404;
        ret_note := 'Node not initialized for queue: ' || i_queue_name;
        return;
    end if;
    if _node.node_type <> 'branch' then
        ret_code := 301;
        ret_note := 'Node not branch';
        return;
    end if;

    -- Position before queue, as the transaction of a batch takes them.
    perform 1
    from pgq_node.local_state s
    where s.queue_name = i_queue_name
        and s.consumer_name = _node.worker_name
    for no key update;

    update pgq.queue q
    set queue_disable_insert = false,
        queue_external_ticker = false
    where q.queue_name = i_queue_name;

    update pgq_node.node_info n
    set node_type = 'root'
    where n.queue_name = i_queue_name;

    -- The new root is its own provider and begins at the last tick it was given.
    update pgq_node.local_state s
    set provider_node = _node.node_name,
        last_tick_id = pgq_node.queue_top(i_queue_name),
        uptodate = false
    where s.queue_name = i_queue_name
        and s.consumer_name = _node.worker_name;

    ret_code := 200;
    ret_note := 'Branch node promoted to root';
end;
$$;
