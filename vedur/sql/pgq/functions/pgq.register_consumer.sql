create or replace function pgq.register_consumer(x_queue_name text, x_consumer_id text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Subscribes a consumer to a queue, starting after the last tick.
--
-- Parameters:
--     x_queue_name    name of the queue
--     x_consumer_id   name of the consumer
-- Returns: 1 new, 0 subscribed before (its position stays)
-- Writes: pgq.consumer, pgq.subscription
-- Raises: as pgq.register_consumer_at
-- ----------------------------------------------------------------------
begin
    return pgq.register_consumer_at(x_queue_name, x_consumer_id, null);
end;
$$;
