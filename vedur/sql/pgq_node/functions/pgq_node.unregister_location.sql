create or replace function pgq_node.unregister_location(
    in i_queue_name text,
    in i_node_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Forget a node; the root also tells all other nodes.
--
-- Parameters: i_queue_name - cascaded queue; i_node_name - node to forget.
-- Returns: 200 done; 301 not known here; 403 it is this node or its provider.
-- Writes: pgq_node.node_location, pgq_node.subscriber_info, pgq subscriptions;
--         on root event pgq.unregister-location, also for 301, so that a member that
--         missed the first one gets it again.
-- Raises: foreign key violation while another local consumer reads from that node.
-- ----------------------------------------------------------------------
declare
    _node record;
begin
    select n.node_type, n.node_name, s.provider_node
    into _node
    from pgq_node.node_info n
        left join pgq_node.local_state s
            on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
    where n.queue_name = i_queue_name;

    if _node.node_name = i_node_name then
        ret_code := 403;
        ret_note := 'Cannot drop node''s own location';
        return;
    end if;
    if _node.provider_node = i_node_name then
        ret_code := 403;
        ret_note := 'Cannot drop location of node''s parent';
        return;
    end if;

    perform pgq_node.unregister_subscriber(i_queue_name, i_node_name);

    delete from pgq_node.node_location l
    where l.queue_name = i_queue_name
        and l.node_name = i_node_name;
    if found then
        ret_code := 200;
        ret_note := 'Ok';
    else
        ret_code := 301;
        ret_note := 'Location not found: ' || i_queue_name || '/' || i_node_name;
    end if;

    if _node.node_type = 'root' then
        perform pgq.insert_event(
            i_queue_name, 'pgq.unregister-location', i_node_name,
            i_queue_name, null, null, null);
    end if;
end;
$$;
