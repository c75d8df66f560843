create or replace function pgq_node.is_root_node(i_queue_name text)
returns boolean
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tell whether this node is where events of the queue are made.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: true for root, false for branch and leaf.
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
    return _type = 'root';
end;
$$;
