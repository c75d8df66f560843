create or replace function pgq_node.unregister_subscriber(
    in i_queue_name text,
    in i_remote_node_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- End another node's subscription and free the events kept for it.
--
-- Parameters: i_queue_name - cascaded queue; i_remote_node_name - subscriber node.
-- Returns: 200 done; 304 there was no such subscriber.
-- Writes: pgq_node.subscriber_info, pgq subscriptions of its worker and watermark.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _sub record;
begin
    delete from pgq_node.subscriber_info s
    where s.queue_name = i_queue_name
        and s.subscriber_node = i_remote_node_name
    returning s.worker_name, s.watermark_name
    into _sub;
    if not found then
        ret_code := 304;
        ret_note := 'Subscriber not found';
        return;
    end if;

    perform pgq.unregister_consumer(i_queue_name, _sub.watermark_name);
    perform pgq.unregister_consumer(i_queue_name, _sub.worker_name);

    ret_code := 200;
    ret_note := 'Subscriber unregistered: ' || i_remote_node_name;
end;
$$;
