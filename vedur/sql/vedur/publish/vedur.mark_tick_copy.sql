create or replace function vedur.mark_tick_copy(i_queue_name text, i_consumer_name text)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Notes that the consumer of a first copy goes by the tick that this branch shows, so that the branch need not publish tick by
-- tick for its sake. Call it in the transaction that registers the consumer. Marks of subscriptions that are gone are removed.
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer that holds the queue for the copy
-- Returns: false if there is no such subscription
-- Writes: vedur.tick_copy
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _sub_id integer;
begin
    select s.sub_id into _sub_id
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = i_queue_name and c.co_name = i_consumer_name;
    if not found then
        return false;
    end if;
    -- Old ones only: another transaction may have marked a subscription that we do not see yet.
    delete from vedur.tick_copy t
    where t.marked_at < clock_timestamp() - '1 day'::interval
        and not exists (select 1 from pgq.subscription s where s.sub_id = t.sub_id);
    insert into vedur.tick_copy (sub_id) values (_sub_id)
    on conflict (sub_id) do nothing;
    return true;
end;
$$;
