create or replace function vedur.epoch(i_queue_name text default null)
returns uuid
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tell the identity of the reign that this node knows as the last one. It changes with every takeover: who has stored it with his data knows
-- whether the root is still the same.
--
-- Parameters: i_queue_name - cascaded queue; null: the only one that has a node here.
-- Returns: the epoch; null for a set without one (made by Londiste, or before Vedur had epochs), and where there is no node.
-- Writes: nothing.
-- Raises: ambiguous_parameter where several queues have nodes here and none is named.
-- ----------------------------------------------------------------------
begin
    if i_queue_name is null and (select count(*) > 1 from pgq_node.node_info) then
        raise exception 'several queues have nodes in this database: name one of them' using errcode = 'ambiguous_parameter';
    end if;
    return (
        select r.epoch
        from vedur.reign r
        join pgq_node.node_info n on n.queue_name = r.queue_name
        where n.queue_name = i_queue_name or i_queue_name is null
        order by r.serial desc
        limit 1);
end;
$$;
