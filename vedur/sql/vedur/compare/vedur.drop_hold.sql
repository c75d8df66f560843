create or replace function vedur.drop_hold(i_queue_name text, i_consumer_name text, i_tick_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Lets a consumer go on, and wakes it: channel pgq_tick, payload "queue_name:tick_id".
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer
--     i_tick_id       where it was to stop
-- Returns: false if there was no such hold
-- Writes: vedur.hold
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _found boolean;
begin
    delete from vedur.hold
    where queue_name = i_queue_name and consumer_name = i_consumer_name and tick_id = i_tick_id;
    _found := found;
    if octet_length(i_queue_name) < 7900 then
        perform pg_notify('pgq_tick', i_queue_name || ':' || i_tick_id);
    end if;
    return _found;
end;
$$;
