create or replace function vedur.other_nodes(i_queue_name text)
returns text[]
language sql
stable
as $$
-- Name the nodes of a set that may lack what no event of this node told.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: all but this one; also those that are tagged as dead, since they may come back with their rows. A node that
--     joins later copies its tables as they are then.
-- Writes: nothing.
    select array(
        select l.node_name
        from pgq_node.node_location as l
            join pgq_node.node_info as n on n.queue_name = l.queue_name and n.node_name <> l.node_name
        where l.queue_name = i_queue_name
        order by l.node_name)
$$;
