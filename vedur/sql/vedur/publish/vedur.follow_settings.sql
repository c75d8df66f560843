create or replace function vedur.follow_settings(
    i_queue_name text,
    i_ticker_max_count integer,
    i_ticker_max_lag interval,
    i_ticker_idle_period interval,
    i_rotation_period interval)
returns text[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Gives the queue of a branch the settings that its provider's has.
--
-- Parameters:
--     i_queue_name            queue
--     i_ticker_max_count      events after which there is a tick
--     i_ticker_max_lag        age of an event after which there is a tick
--     i_ticker_idle_period    time after which there is a tick without events
--     i_rotation_period       time after which tables are rotated
-- Returns: names of the settings that were others
-- Writes: pgq.queue
-- Raises: nothing; on a node that is no branch, or without a value, nothing is changed
-- ----------------------------------------------------------------------
declare
    _changed text[];
begin
    select array_remove(array[
        case when q.queue_ticker_max_count <> i_ticker_max_count then 'ticker_max_count' end,
        case when q.queue_ticker_max_lag <> i_ticker_max_lag then 'ticker_max_lag' end,
        case when q.queue_ticker_idle_period <> i_ticker_idle_period then 'ticker_idle_period' end,
        case when q.queue_rotation_period <> i_rotation_period then 'rotation_period' end], null)
    into _changed
    from pgq.queue q
    join pgq_node.node_info n on n.queue_name = q.queue_name and n.node_type = 'branch'
    where q.queue_name = i_queue_name;
    if coalesce(cardinality(_changed), 0) = 0 then
        return array[]::text[];
    end if;

    update pgq.queue q
    set queue_ticker_max_count = coalesce(i_ticker_max_count, q.queue_ticker_max_count),
        queue_ticker_max_lag = coalesce(i_ticker_max_lag, q.queue_ticker_max_lag),
        queue_ticker_idle_period = coalesce(i_ticker_idle_period, q.queue_ticker_idle_period),
        queue_rotation_period = coalesce(i_rotation_period, q.queue_rotation_period)
    where q.queue_name = i_queue_name;
    return _changed;
end;
$$;
