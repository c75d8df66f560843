create or replace function vedur.raw_stage_key(i_queue_name text)
returns text
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Names whose the raw staging tables of a node are. A branch has a queue, whose number does. A leaf that is merged into a combined
-- queue has none of its own, and shares the combined one with other parts: there it is the name of the part.
--
-- Parameters:
--     i_queue_name    cascaded queue
-- Returns: the middle of the tables' names; null if there is neither such a part nor such a queue
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
select coalesce(
    (
        select 'part_' || pg_catalog.md5(n.queue_name)
        from pgq_node.node_info n
        where n.queue_name = i_queue_name and n.node_type = 'leaf' and n.combined_queue is not null
    ),
    (select q.queue_id::text from pgq.queue q where q.queue_name = i_queue_name));
$$;
