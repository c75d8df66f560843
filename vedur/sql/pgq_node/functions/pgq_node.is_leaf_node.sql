create or replace function pgq_node.is_leaf_node(i_queue_name text)
returns boolean
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tell whether this node has tables only and no copy of the queue.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: true for leaf, false for root and branch.
-- Writes: nothing.
-- Raises: "queue does not exist" when no node is set up for the queue.
-- ----------------------------------------------------------------------
declare
    _type text;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;

    if not found then
        raise exception 'queue does not exist: %', i_queue_name;
    end if;
    return _type = 'leaf';
end;
$$;
