create or replace function pgq_node.demote_root(
    in i_queue_name text,
    in i_step integer,
    in i_new_provider text,
    out ret_code integer,
    out ret_note text,
    out last_tick bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Turn the root into a branch in three steps, each in a transaction of its own:
-- 1 stop writers and ticker, 2 wait for open writers and make the last tick, 3 change type.
--
-- Parameters: i_queue_name - cascaded queue; i_step - 1, 2 or 3; i_new_provider - step 3: node
--             to read from.
-- Returns: 200 step done, steps 2 and 3 with the last tick; 301 not root; 404 no node here.
-- Writes: pgq.queue, pgq.tick, pgq_node.node_info, pgq_node.local_state.
-- Raises: "steps in wrong order", "incorrect step number"; foreign key violation for an
--         unknown new provider.
-- ----------------------------------------------------------------------
declare
    _node record;
    _queue record;
begin
    select n.node_type, n.worker_name
    into _node
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
    for no key update;
    if not found then
        ret_code := 404;
        ret_note := 'Node not initialized for queue: ' || i_queue_name;
        return;
    end if;
    if _node.node_type <> 'root' then
        ret_code := 301;
        ret_note := 'Node not root';
        return;
    end if;

    select q.queue_disable_insert and q.queue_external_ticker as stopped,
        q.queue_data_pfx, q.queue_tick_seq, q.queue_event_seq
    into _queue
    from pgq.queue q
    where q.queue_name = i_queue_name;

    if i_step in (2, 3) and not _queue.stopped then
        raise exception 'steps in wrong order';
    end if;

    if i_step = 1 then
        update pgq.queue q
        set queue_disable_insert = true,
            queue_external_ticker = true
        where q.queue_name = i_queue_name;
        ret_note := 'Step 1: Writing disabled for: ' || i_queue_name;
    elsif i_step = 2 then
        -- Writers that began before step 1 hold row locks on the event tables until they end.
        execute 'lock table ' || pgq.quote_fqname(_queue.queue_data_pfx) || ' in exclusive mode';
        last_tick := pg_catalog.nextval(pgq.quote_fqname(_queue.queue_tick_seq));
        perform pgq.ticker(
            i_queue_name, last_tick, pg_catalog.now(),
            pg_catalog.nextval(pgq.quote_fqname(_queue.queue_event_seq)));
        ret_note := 'Step 2: Inserted last tick: ' || i_queue_name;
    elsif i_step = 3 then
        last_tick := pgq_node.queue_top(i_queue_name);
        update pgq_node.node_info n
        set node_type = 'branch'
        where n.queue_name = i_queue_name;
        update pgq_node.local_state s
        set provider_node = i_new_provider,
            last_tick_id = last_tick,
            uptodate = false
        where s.queue_name = i_queue_name
            and s.consumer_name = _node.worker_name;
        ret_note := 'Step 3: Demoted root to branch: ' || i_queue_name;
    else
        raise exception 'incorrect step number';
    end if;
    ret_code := 200;
end;
$$;
