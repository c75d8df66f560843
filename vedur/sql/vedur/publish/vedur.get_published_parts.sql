create or replace function vedur.get_published_parts(
    i_queue_name text,
    i_after_tick bigint,
    i_tick_id bigint,
    out table_name text,
    out condition text
)
returns setof record
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells of which tables the queue of this branch has a part of the events: what a node must know before it applies them.
--
-- Parameters:
--     i_queue_name    queue
--     i_after_tick    tick behind which events are read
--     i_tick_id       tick up to which they are read; null for all that are to come
-- Returns: name of the table in the set, and the condition of its rows, in the words of this node
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
select distinct p.table_name, p.condition
from vedur.published_part p
join pgq.queue q on q.queue_id = p.queue_id
where q.queue_name = i_queue_name
    and (i_tick_id is null or p.after_tick < i_tick_id)
    and (p.until_tick is null or p.until_tick > i_after_tick)
order by 1, 2;
$$;
