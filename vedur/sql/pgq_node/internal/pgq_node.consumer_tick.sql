create or replace function pgq_node.consumer_tick(i_queue_name text, i_consumer_name text)
returns bigint
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Tick that a consumer of the local queue has finished.
--
-- Parameters: i_queue_name - queue; i_consumer_name - consumer.
-- Returns: tick id, NULL when there is no such subscription.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
    select s.sub_last_tick
    from pgq.subscription s
        join pgq.queue q on q.queue_id = s.sub_queue
        join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = i_queue_name
        and c.co_name = i_consumer_name;
$$;
