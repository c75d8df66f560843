create or replace function pgq_node.lowest_tick(i_queue_name text)
returns bigint
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Lowest tick that somebody at or below this node still needs from the local queue.
--
-- The consumer ".global_watermark" is left out: it follows this value, so counting it
-- would hold the cascade back for ever.
--
-- Parameters: i_queue_name - queue.
-- Returns: tick id; the newest tick when there are no consumers; NULL without local queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
    select coalesce(min(s.sub_last_tick), pgq_node.queue_top(i_queue_name))
    from pgq.subscription s
        join pgq.queue q on q.queue_id = s.sub_queue
        join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = i_queue_name
        and c.co_name <> '.global_watermark';
$$;
