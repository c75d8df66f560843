create or replace function vedur.lock_position(i_queue_name text, i_consumer_name text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- The position of a consumer, locked: until the transaction ends no batch can be committed by it.
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer
-- Returns: the tick it has completed; null if it is not registered here
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _tick bigint;
begin
    select last_tick_id into _tick
    from pgq_node.local_state
    where queue_name = i_queue_name and consumer_name = i_consumer_name
    for update;
    return _tick;
end;
$$;
