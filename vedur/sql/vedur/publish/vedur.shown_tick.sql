create or replace function vedur.shown_tick(
    in i_queue_name text,
    out tick_id bigint,
    out tick_time timestamptz,
    out tick_event_seq bigint,
    out tick_snapshot text
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- The tick that the tables of a branch show in the snapshot of this transaction. Tables, position, events and ticks of a branch
-- change in one transaction, so every snapshot of it is exactly one tick. Who copies tables in this snapshot goes on with the
-- events behind tick_id; of events that are read from earlier on, those whose ev_txid tick_snapshot contains are in the copy.
--
-- Parameters:
--     i_queue_name    cascaded queue; this node is a branch of it
-- Returns: the row of pgq.tick
-- Writes: nothing
-- Raises: feature_not_supported in read committed, where the next statement may show another tick;
--     object_not_in_prerequisite_state if this node is no branch, or if its worker has yet to write the tick (upstream's writes
--     it in a transaction of its own: try again)
-- ----------------------------------------------------------------------
begin
    if current_setting('transaction_isolation') = 'read committed' then
        raise exception 'which tick queue "%" shows is known in isolation level repeatable read only', i_queue_name
            using errcode = 'feature_not_supported';
    end if;
    select s.last_tick_id into tick_id
    from pgq_node.node_info n
    join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
    where n.queue_name = i_queue_name and n.node_type = 'branch';
    if not found then
        raise exception 'this node is not a branch of queue "%"', i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    select t.tick_time, t.tick_event_seq, t.tick_snapshot::text into tick_time, tick_event_seq, tick_snapshot
    from pgq.tick t
    join pgq.queue q on q.queue_id = t.tick_queue
    where q.queue_name = i_queue_name and t.tick_id = shown_tick.tick_id;
    if not found then
        raise exception 'tick % of queue "%" is not written yet: try again', tick_id, i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
end;
$$;
