create or replace function vedur.promote(
    in i_queue_name text,
    in i_epoch uuid,
    in i_kind text,
    in i_tick_id bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Makes this branch the root under an epoch, if it stands exactly at a tick: its tables, its queue and its position are those of the root then.
-- The caller holds the lock of the position (vedur/node/position.py).
--
-- Parameters: i_queue_name - cascaded queue; i_epoch - of the new reign; i_kind - takeover or failover; i_tick_id - last tick of the old one.
-- Returns: 200 done; 201 it was done before; 404 no node here; 409 the takeover was undone, the node does not stand at the
--          tick, or its tables are not whole by now: an event is in quarantine, or a table is not in sync.
-- Writes: pgq.queue, pgq_node.node_info, pgq_node.local_state (pgq_node.promote_branch); vedur.reign and its event.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _node record;
    _position bigint;
    _newest bigint;
    _table record;
begin
    select n.node_type, n.worker_name into _node from pgq_node.node_info n where n.queue_name = i_queue_name for update;
    if not found then
        ret_code := 404;
        ret_note := 'Node not initialized for queue: ' || i_queue_name;
        return;
    end if;
    if exists (select from vedur.reign r where r.queue_name = i_queue_name and r.epoch = i_epoch) then
        ret_code := 201;
        ret_note := 'Branch node was promoted before';
        return;
    end if;
    if exists (select from vedur.barred_epoch b where b.queue_name = i_queue_name and b.epoch = i_epoch) then
        ret_code := 409;
        ret_note := 'the takeover was undone (--abort)';
        return;
    end if;
    select s.last_tick_id into _position
    from pgq_node.local_state s
    where s.queue_name = i_queue_name and s.consumer_name = _node.worker_name
    for update;
    _newest := vedur.newest_tick(i_queue_name);
    if _node.node_type <> 'branch' or _position <> i_tick_id or _newest <> i_tick_id then
        ret_code := 409;
        ret_note := format(
            'this %s stands at tick %s and its queue ends with tick %s: the root would begin at tick %s',
            _node.node_type, _position, _newest, i_tick_id);
        return;
    end if;
    -- checked before, and since then batches were applied
    if exists (select from vedur.quarantine e where e.queue_name = i_queue_name) then
        ret_code := 409;
        ret_note := 'events are in quarantine on this node: quarantine replay them first';
        return;
    end if;
    if to_regclass('londiste.table_info') is not null then
        select t.table_name, t.merge_state into _table
        from londiste.table_info t
        where t.queue_name = i_queue_name and t.local and coalesce(t.merge_state, '') not in ('ok', '?')
        order by t.nr
        limit 1;
        if found then
            ret_code := 409;
            ret_note := format('table "%s" of this node is in state "%s": wait until it is ok (wait-sync)', _table.table_name, _table.merge_state);
            return;
        end if;
    end if;
    select p.ret_code, p.ret_note into ret_code, ret_note from pgq_node.promote_branch(i_queue_name) p;
    if ret_code <> 200 then
        ret_code := 409;
        return;
    end if;
    perform vedur.begin_reign(i_queue_name, i_kind, i_epoch);
end;
$$;
