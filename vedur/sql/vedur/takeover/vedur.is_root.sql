create or replace function vedur.is_root(i_queue_name text default null)
returns boolean
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether this database takes the writes of a set now. For health checks of proxies and for applications that have just connected.
--
-- Parameters: i_queue_name - cascaded queue; null: all that have a node here.
-- Returns: true on a root whose queue is open and which nobody has replaced; false anywhere else, also where there is no node.
-- Writes: nothing.
    select coalesce(bool_and(
        n.node_type = 'root'
        and not q.queue_disable_insert
        and not exists (select from vedur.deposed as d where d.queue_name = n.queue_name)), false)
    from pgq_node.node_info as n
        left join pgq.queue as q on q.queue_name = n.queue_name
    where n.queue_name = i_queue_name or i_queue_name is null
$$;
