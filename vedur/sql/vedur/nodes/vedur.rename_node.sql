create or replace function vedur.rename_node(
    in i_queue_name text,
    in i_old_name text,
    in i_new_name text,
    in i_step integer,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Give a member of a cascade another name, on this node; each step may be repeated.
--
-- Parameters: i_queue_name - cascaded queue; i_old_name, i_new_name - the member;
--             i_step - 1: both names are known, and a provider keeps a subscription for both;
--             2: the node itself and those that read from it use the new name;
--             3: the old name is forgotten. All nodes must have done a step before the next one.
-- Returns: 200 done; 201 it was done before; 404 unknown queue or node; 409 steps in wrong order.
-- Writes: step 1: pgq_node.node_location, pgq_node.subscriber_info, the pgq subscription of
--         ".<new>.watermark", on root event pgq.location-info; step 2: pgq_node.node_info,
--         pgq_node.local_state, vedur.position, vedur.reign, vedur.table_change; step 3: the rows of the old name and the
--         subscription of its watermark, on root event pgq.unregister-location.
-- Raises: errors of pgq.register_consumer_at when the tick of the watermark is gone.
-- ----------------------------------------------------------------------
declare
    _location record;
    _sub record;
    _changed boolean := false;
begin
    if not exists (select from pgq_node.node_info n where n.queue_name = i_queue_name) then
        ret_code := 404;
        ret_note := 'Unknown queue: ' || i_queue_name;
        return;
    end if;
    if i_step > 1 and not exists (
        select from pgq_node.node_location l
        where l.queue_name = i_queue_name and l.node_name = i_new_name
    ) then
        ret_code := 409;
        ret_note := 'steps in wrong order: ' || i_new_name || ' is not known here';
        return;
    end if;
    select s.subscriber_node, s.worker_name, s.watermark_name
    into _sub
    from pgq_node.subscriber_info s
    where s.queue_name = i_queue_name and s.subscriber_node = i_old_name;

    if i_step = 1 then
        select l.node_location, l.dead
        into _location
        from pgq_node.node_location l
        where l.queue_name = i_queue_name and l.node_name = i_old_name;
        if not found then
            ret_code := case when exists (
                select from pgq_node.node_location l
                where l.queue_name = i_queue_name and l.node_name = i_new_name) then 201 else 404 end;
            ret_note := 'Unknown node: ' || i_old_name;
            return;
        end if;
        if not exists (
            select from pgq_node.node_location l
            where l.queue_name = i_queue_name and l.node_name = i_new_name
        ) then
            perform pgq_node.register_location(
                i_queue_name, i_new_name, _location.node_location, _location.dead);
            _changed := true;
        end if;
        if _sub.subscriber_node is not null and not exists (
            select from pgq_node.subscriber_info s
            where s.queue_name = i_queue_name and s.subscriber_node = i_new_name
        ) then
            -- Whichever name the node reports under, its watermark is kept here.
            perform pgq.register_consumer_at(
                i_queue_name, '.' || i_new_name || '.watermark',
                pgq_node.consumer_tick(i_queue_name, _sub.watermark_name));
            insert into pgq_node.subscriber_info
                (queue_name, subscriber_node, worker_name, watermark_name)
            values
                (i_queue_name, i_new_name, _sub.worker_name, '.' || i_new_name || '.watermark');
            _changed := true;
        end if;
    elsif i_step = 2 then
        update pgq_node.node_info n
        set node_name = i_new_name
        where n.queue_name = i_queue_name and n.node_name = i_old_name;
        _changed := found;
        update pgq_node.local_state s
        set provider_node = i_new_name
        where s.queue_name = i_queue_name and s.provider_node = i_old_name;
        _changed := _changed or found;
        update vedur.position p
        set provider_node = i_new_name
        where p.queue_name = i_queue_name and p.provider_node = i_old_name;
        update vedur.reign r
        set root_node = i_new_name
        where r.queue_name = i_queue_name and r.root_node = i_old_name;
        update vedur.table_change c
        set pending = array_replace(c.pending, i_old_name, i_new_name)
        where c.queue_name = i_queue_name and i_old_name = any (c.pending);
    elsif i_step = 3 then
        if exists (
            select from pgq_node.node_info n
            where n.queue_name = i_queue_name and n.node_name = i_old_name
        ) or exists (
            select from pgq_node.local_state s
            where s.queue_name = i_queue_name and s.provider_node = i_old_name
        ) then
            ret_code := 409;
            ret_note := 'steps in wrong order: ' || i_old_name || ' is still used here';
            return;
        end if;
        if _sub.subscriber_node is not null then
            -- The worker is subscribed under the new name: only the row and the watermark go.
            delete from pgq_node.subscriber_info s
            where s.queue_name = i_queue_name and s.subscriber_node = i_old_name;
            perform pgq.unregister_consumer(i_queue_name, _sub.watermark_name);
            _changed := true;
        end if;
        if exists (
            select from pgq_node.node_location l
            where l.queue_name = i_queue_name and l.node_name = i_old_name
        ) then
            perform pgq_node.unregister_location(i_queue_name, i_old_name);
            _changed := true;
        end if;
    else
        ret_code := 409;
        ret_note := 'no such step: ' || i_step;
        return;
    end if;

    ret_code := case when _changed then 200 else 201 end;
    ret_note := 'Node ' || i_old_name || ' renamed to ' || i_new_name || ', step ' || i_step;
end;
$$;
