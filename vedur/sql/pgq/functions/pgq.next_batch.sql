create or replace function pgq.next_batch(i_queue_name text, i_consumer_name text)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Opens the next batch of a consumer.
--
-- Parameters:
--     i_queue_name    name of the queue
--     i_consumer_name name of the consumer
-- Returns: batch id, the same again until the batch is finished; null if there is no new tick
-- Writes: pgq.subscription
-- Raises: as pgq.next_batch_custom
-- ----------------------------------------------------------------------
begin
    return (select b.batch_id from pgq.next_batch_custom(i_queue_name, i_consumer_name, null, null, null) b);
end;
$$;
