create or replace function vedur.newest_tick(i_queue_name text)
returns bigint
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Reads the newest tick of a queue. Upstream's schema pgq_node has no function for it, and a reign can begin on an installation of upstream's.
--
-- Parameters: i_queue_name - queue.
-- Returns: tick id; null where there is no such queue, or it has no tick.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
    -- with a join the server would read all ticks to sort them
    select t.tick_id
    from pgq.tick t
    where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = i_queue_name)
    order by t.tick_id desc
    limit 1;
$$;
