create or replace function vedur.passed_parts(
    in i_queue_name text,
    in i_tick_id bigint,
    out table_name text,
    out condition text,
    out until_tick bigint
)
returns setof record
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells of which tables the queue of this node lacks events behind a tick, and which: those of rows for which the condition does
-- not hold. Events of a batch are committed together with what is told of them, so who reads a batch asks after it was opened.
--
-- Parameters:
--     i_queue_name    cascaded queue
--     i_tick_id       the tick behind which events are read
-- Returns: name of the table in the set; condition, in names of this node and of the set; until_tick: the last tick whose events
--     are filtered, null while they go on to be
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
    select p.table_name, p.condition, p.until_tick
    from vedur.passed_part p
    join pgq.queue q on q.queue_id = p.queue_id
    where q.queue_name = i_queue_name and (p.until_tick is null or p.until_tick > i_tick_id)
    order by 1, 2;
$$;
