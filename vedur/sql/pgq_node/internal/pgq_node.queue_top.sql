create or replace function pgq_node.queue_top(i_queue_name text)
returns bigint
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Newest tick of the local copy of a queue.
--
-- Parameters: i_queue_name - queue.
-- Returns: tick id, NULL when the queue is not on this node (leaf).
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
    -- no join: with one the server may read all ticks to sort them, and workers ask for each batch
    select t.tick_id
    from pgq.tick t
    where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = i_queue_name)
    order by t.tick_queue desc, t.tick_id desc
    limit 1;
$$;
