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
    select t.tick_id
    from pgq.tick t
        join pgq.queue q on q.queue_id = t.tick_queue
    where q.queue_name = i_queue_name
    order by t.tick_queue desc, t.tick_id desc
    limit 1;
$$;
