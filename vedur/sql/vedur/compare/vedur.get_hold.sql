create or replace function vedur.get_hold(i_queue_name text, i_consumer_name text, i_last_tick bigint)
returns bigint
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- The tick that a consumer may not pass. A consumer asks after it has chosen the end of a batch, and again in the
-- transaction that commits it: only an answer from then is sure to know of a hold that was set before the tick appeared.
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer
--     i_last_tick     tick that it has completed
-- Returns: a tick >= i_last_tick; equal to it: wait here; null: no limit
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return (
        select min(tick_id)
        from vedur.hold
        where queue_name = i_queue_name
            and consumer_name = i_consumer_name
            and tick_id >= i_last_tick
            and until > clock_timestamp());
end;
$$;
