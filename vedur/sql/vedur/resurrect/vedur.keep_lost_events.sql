create or replace function vedur.keep_lost_events(
    i_queue_name text,
    i_tick_id bigint,
    i_epoch uuid default null)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Moves everything behind a tick out of the queue of a node that was replaced at it: events to vedur.lost_event, ticks away, consumers back to the tick.
-- Watermarks, by which a root tells how far nodes are, are worth nothing to anybody and are not kept.
-- The queue then ends where the reign of the new root begins, and can be continued with its ticks.
--
-- Parameters:
--     i_queue_name    cascaded queue; this node is its deposed root, or a branch that has followed the deposed root too far
--     i_tick_id       the last tick that the new root has inherited
--     i_epoch         reign under which the events were written; null: the set had none
-- Returns: number of events that were kept
-- Writes: vedur.lost_event, event tables, pgq.tick, pgq.subscription
-- Raises: object_not_in_prerequisite_state unless the queue is closed for writers and ticker and has the tick; feature_not_supported outside READ COMMITTED
-- ----------------------------------------------------------------------
declare
    _node record;
    _queue pgq.queue%rowtype;
    _tick pgq.tick%rowtype;
    _events text;
    _kept bigint;
begin
    -- A snapshot from before the lock could miss a writer that has just ended.
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'vedur.keep_lost_events works in READ COMMITTED only' using errcode = 'feature_not_supported';
    end if;
    select n.node_name, n.node_type into _node from pgq_node.node_info n where n.queue_name = i_queue_name for update;
    select * into _queue from pgq.queue q where q.queue_name = i_queue_name for update;
    if _node.node_name is null or _queue.queue_id is null or _node.node_type = 'leaf' then
        raise exception 'queue "%" has no root or branch here', i_queue_name using errcode = 'object_not_in_prerequisite_state';
    end if;
    if not (_queue.queue_disable_insert and _queue.queue_external_ticker) then
        raise exception 'queue "%" is open: what is written meanwhile would be missed', i_queue_name using errcode = 'object_not_in_prerequisite_state';
    end if;
    _events := pgq.quote_fqname(_queue.queue_data_pfx);
    execute 'lock table ' || _events || ' in exclusive mode';

    select * into _tick from pgq.tick t where t.tick_queue = _queue.queue_id and t.tick_id = i_tick_id;
    if not found then
        raise exception 'queue "%" has no tick %', i_queue_name, i_tick_id using errcode = 'object_not_in_prerequisite_state';
    end if;

    execute format(
        'insert into vedur.lost_event (queue_name, node_name, epoch, first_tick, tick_id, ev_id, ev_time, ev_txid, ev_type, ev_data,'
        '    ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
        ' select $1, $2, $3, $4, ('
        '        select t.tick_id from pgq.tick t'
        '        where t.tick_queue = $5 and t.tick_id > $4 and txid_visible_in_snapshot(e.ev_txid, t.tick_snapshot)'
        '        order by t.tick_id limit 1),'
        '    e.ev_id, e.ev_time, e.ev_txid, e.ev_type, e.ev_data, e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4'
        ' from %s e'
        ' where e.ev_owner is null and e.ev_type is distinct from ''pgq.global-watermark'' and e.ev_txid between txid_snapshot_xmin($6) and 9223372036854775807 and not txid_visible_in_snapshot(e.ev_txid, $6)'
        ' order by e.ev_id', _events)
    using i_queue_name, _node.node_name, i_epoch, i_tick_id, _queue.queue_id, _tick.tick_snapshot;
    get diagnostics _kept = row_count;

    -- Those with an owner are second tries for one consumer; what it wants again is gone with the rest.
    execute format('delete from %s where ev_txid between txid_snapshot_xmin($1) and 9223372036854775807 and not txid_visible_in_snapshot(ev_txid, $1)', _events)
    using _tick.tick_snapshot;
    -- What a consumer has seen of this or has open must not be finished any more.
    perform pgq.register_consumer_at(i_queue_name, c.co_name, i_tick_id)
    from pgq.subscription s
    join pgq.consumer c on c.co_id = s.sub_consumer
    where s.sub_queue = _queue.queue_id and greatest(s.sub_last_tick, s.sub_next_tick) > i_tick_id;
    delete from pgq.tick t where t.tick_queue = _queue.queue_id and t.tick_id > i_tick_id;
    return _kept;
end;
$$;
