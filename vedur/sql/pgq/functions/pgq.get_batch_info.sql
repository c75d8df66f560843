create or replace function pgq.get_batch_info(
    x_batch_id bigint,
    out queue_name text,
    out consumer_name text,
    out batch_start timestamptz,
    out batch_end timestamptz,
    out prev_tick_id bigint,
    out tick_id bigint,
    out lag interval,
    out seq_start bigint,
    out seq_end bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Describes an open batch.
--
-- Parameters:
--     x_batch_id      open batch
-- Returns: queue, consumer, time, id and event sequence of both ticks, age of the upper one; all null if there is no such batch
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    select q.queue_name, c.co_name, prev.tick_time, cur.tick_time, prev.tick_id, cur.tick_id,
        now() - cur.tick_time, prev.tick_event_seq, cur.tick_event_seq
    into queue_name, consumer_name, batch_start, batch_end, prev_tick_id, tick_id,
        lag, seq_start, seq_end
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    join pgq.tick prev on prev.tick_queue = s.sub_queue and prev.tick_id = s.sub_last_tick
    join pgq.tick cur on cur.tick_queue = s.sub_queue and cur.tick_id = s.sub_next_tick
    where s.sub_batch = x_batch_id;
end;
$$;
