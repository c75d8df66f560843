create or replace function vedur.set_hold(
    i_queue_name text, i_consumer_name text, i_tick_id bigint, i_period interval
)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Asks a consumer that keeps its position here to end a batch at a tick and to wait there. Called again, it extends the
-- time. Holds that ran out are removed on the way.
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer, normally the node's worker
--     i_tick_id       where to stop
--     i_period        after this the hold counts for nothing, so that a dead holder stops nobody
-- Returns: nothing
-- Writes: vedur.hold
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    delete from vedur.hold where until < clock_timestamp();
    insert into vedur.hold (queue_name, consumer_name, tick_id, until)
    values (i_queue_name, i_consumer_name, i_tick_id, clock_timestamp() + i_period)
    on conflict (queue_name, consumer_name, tick_id) do update
    set until = excluded.until;
end;
$$;
