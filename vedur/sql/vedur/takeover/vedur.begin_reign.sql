create or replace function vedur.begin_reign(
    i_queue_name text,
    i_kind text,
    i_epoch uuid default null,
    i_announce boolean default true)
returns uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Begins the reign of this node, which is the root, and tells all other nodes. The event is the one by which a root registers a location, its own:
-- Londiste's workers know it and pass it on whole, ours read the reign from ev_extra4. It comes before the first tick of the reign.
--
-- Parameters:
--     i_queue_name    cascaded queue
--     i_kind          created, takeover, failover, adopted or kept
--     i_epoch         identity of the reign; null: a new one
--     i_announce      false: the set has no other node yet
-- Returns: the epoch
-- Writes: vedur.reign; event pgq.location-info
-- Raises: object_not_in_prerequisite_state if this node is not the root
-- ----------------------------------------------------------------------
declare
    _node record;
    _last vedur.reign%rowtype;
    _epoch uuid := coalesce(i_epoch, gen_random_uuid());
    _tick bigint := vedur.newest_tick(i_queue_name);
begin
    select n.node_name, n.node_type, l.node_location into _node
    from pgq_node.node_info n
    join pgq_node.node_location l on l.queue_name = n.queue_name and l.node_name = n.node_name
    where n.queue_name = i_queue_name
    for update of n;
    if _node.node_type is distinct from 'root' then
        raise exception 'this node is not the root of queue "%"', i_queue_name using errcode = 'object_not_in_prerequisite_state';
    end if;
    select * into _last from vedur.reign where queue_name = i_queue_name order by serial desc limit 1;
    insert into vedur.reign (queue_name, epoch, serial, root_node, first_tick, previous, kind)
    values (i_queue_name, _epoch, coalesce(_last.serial, 0) + 1, _node.node_name, _tick, _last.epoch, i_kind);
    if i_announce then
        perform pgq.insert_event(
            i_queue_name, 'pgq.location-info', _node.node_name, i_queue_name, _node.node_location, 'false',
            jsonb_build_object(
                'epoch', _epoch, 'serial', coalesce(_last.serial, 0) + 1, 'root', _node.node_name, 'tick', _tick,
                'previous', _last.epoch, 'kind', i_kind)::text);
    end if;
    return _epoch;
end;
$$;
