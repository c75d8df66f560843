create or replace function vedur.copies_by_snapshot(i_queue_name text)
returns setof text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Names the first copies that compare ev_txid of this queue with a transaction snapshot of this server, as upstream's do.
-- While there are any, a batch of a branch may hold events of one tick only; see vedur.publish.
--
-- Parameters:
--     i_queue_name    queue
-- Returns: names of their consumers
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query
    select c.co_name
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = i_queue_name
        and c.co_name like '%.copy.%'
        and not exists (select 1 from vedur.tick_copy t where t.sub_id = s.sub_id)
    order by c.co_name;
end;
$$;
