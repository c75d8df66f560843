create or replace function pgq_node.maint_watermark(i_queue_name text)
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Publish the global watermark from maintenance when the root's worker did not for 5 minutes,
-- so that a stopped worker does not make all queues of the cascade grow.
--
-- Parameters: i_queue_name - queue, cascaded or not.
-- Returns: 0 always: there is nothing to repeat at once.
-- Writes: through pgq_node.set_global_watermark.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _lag interval;
begin
    perform 1
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
        and n.node_type = 'root';
    if not found then
        return 0;
    end if;

    select i.lag
    into _lag
    from pgq.get_consumer_info(i_queue_name, '.global_watermark') i;
    if _lag >= interval '5 minutes' then
        perform pgq_node.set_global_watermark(i_queue_name, null);
    end if;
    return 0;
end;
$$;
