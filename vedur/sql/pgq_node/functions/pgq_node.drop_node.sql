create or replace function pgq_node.drop_node(
    in i_queue_name text,
    in i_node_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Remove a node: on the node itself everything of the cascade, elsewhere what is known of it.
--
-- Parameters: i_queue_name - cascaded queue; i_node_name - node to drop.
-- Returns: 200 done, also when it was gone already; 405 this node reads from it.
-- Writes: all tables of pgq_node, the local queue, and by cascade the registry of londiste;
--         on root event pgq.unregister-location.
-- Raises: foreign key violation while a local consumer still reads from the node.
-- ----------------------------------------------------------------------
declare
    _local boolean;
    _type text;
begin
    if exists (
        select 1
        from pgq_node.node_info n
            join pgq_node.local_state s
                on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
        where n.queue_name = i_queue_name
            and n.node_name <> i_node_name
            and s.provider_node = i_node_name
    ) then
        ret_code := 405;
        ret_note := 'Cannot drop provider node: ' || i_node_name;
        return;
    end if;

    select n.node_name = i_node_name, n.node_type
    into _local, _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;

    if _local then
        delete from pgq_node.subscriber_info s
        where s.queue_name = i_queue_name;

        delete from pgq_node.local_state s
        where s.queue_name = i_queue_name;

        update pgq_node.node_info n
        set combined_queue = null
        where n.combined_queue = i_queue_name;

        delete from pgq_node.node_info n
        where n.queue_name = i_queue_name;

        if _type <> 'leaf' then
            perform pgq.drop_queue(i_queue_name, true);
        end if;

        delete from pgq_node.node_location l
        where l.queue_name = i_queue_name;
    elsif _local is null then
        delete from pgq_node.node_location l
        where l.queue_name = i_queue_name
            and l.node_name = i_node_name;
    else
        perform pgq_node.unregister_location(i_queue_name, i_node_name);
    end if;

    ret_code := 200;
    ret_note := 'Node dropped: ' || i_node_name;
end;
$$;
