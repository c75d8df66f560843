create or replace function vedur.lock_branch(i_queue_name text)
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Locks the queue of a branch until the end of the transaction, and makes sure that nobody but its worker writes it.
--
-- Rotation and promotion wait for the row of pgq.queue, so the current event table stays current. The advisory lock is the one of
-- pgq._lock_ticker.
--
-- Parameters:
--     i_queue_name    cascaded queue
-- Returns: queue_id
-- Writes: nothing
-- Raises: feature_not_supported outside isolation level read committed; undefined_object for an unknown queue;
--     insufficient_privilege where somebody made the queue point to other tables;
--     object_not_in_prerequisite_state if this node is no branch, or if its queue is open for inserts or for the local ticker,
--     or paused
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a branch publishes in isolation level read committed, not in %',
            current_setting('transaction_isolation')
            using errcode = 'feature_not_supported';
    end if;
    select * into _queue from pgq.queue where queue_name = i_queue_name for no key update;
    if not found then
        raise exception 'queue "%" does not exist', i_queue_name using errcode = 'undefined_object';
    end if;
    -- With upstream's pgq others may write these names, and whoever owns a table of theirs has triggers on it.
    if _queue.queue_data_pfx !~ '^pgq[.][^.]+$' or _queue.queue_event_seq !~ '^pgq[.][^.]+$'
        or _queue.queue_tick_seq !~ '^pgq[.][^.]+$'
    then
        raise exception 'tables of queue "%" are outside of schema "pgq"', i_queue_name using errcode = 'insufficient_privilege';
    end if;
    perform pg_advisory_xact_lock(1885827444, _queue.queue_id);
    if not exists (select 1 from pgq_node.node_info where queue_name = i_queue_name and node_type = 'branch') then
        raise exception 'this node is not a branch of queue "%"', i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    if not _queue.queue_disable_insert then
        raise exception 'queue "%" is open for inserts: only its worker may write the queue of a branch', i_queue_name
            using errcode = 'object_not_in_prerequisite_state',
                hint = 'Events that others have inserted are on this node only. Set pgq.queue.queue_disable_insert.';
    end if;
    if not _queue.queue_external_ticker then
        raise exception 'queue "%" is ticked on this node: a branch has the ticks of its root only', i_queue_name
            using errcode = 'object_not_in_prerequisite_state',
                hint = format('Run "select pgq.set_queue_config(%L, ''external_ticker'', ''true'')".', i_queue_name);
    end if;
    if _queue.queue_ticker_paused then
        raise exception 'the ticker of queue "%" is paused', i_queue_name
            using errcode = 'object_not_in_prerequisite_state',
                hint = format('Run "select pgq.set_queue_config(%L, ''ticker_paused'', ''false'')".', i_queue_name);
    end if;
    return _queue.queue_id;
end;
$$;
