create or replace function pgq.next_batch_info(
    i_queue_name text,
    i_consumer_name text,
    out batch_id bigint,
    out cur_tick_id bigint,
    out prev_tick_id bigint,
    out cur_tick_time timestamptz,
    out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint,
    out prev_tick_event_seq bigint
)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Opens the next batch of a consumer and tells its ticks.
--
-- Parameters:
--     i_queue_name    name of the queue
--     i_consumer_name name of the consumer
-- Returns: batch_id, its upper tick (cur_tick_*) and lower tick (prev_tick_*); all null if there is no new tick
-- Writes: pgq.subscription
-- Raises: as pgq.next_batch_custom
-- ----------------------------------------------------------------------
begin
    select b.batch_id, b.cur_tick_id, b.prev_tick_id, b.cur_tick_time, b.prev_tick_time,
        b.cur_tick_event_seq, b.prev_tick_event_seq
    into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
        cur_tick_event_seq, prev_tick_event_seq
    from pgq.next_batch_custom(i_queue_name, i_consumer_name, null, null, null) b;
end;
$$;
