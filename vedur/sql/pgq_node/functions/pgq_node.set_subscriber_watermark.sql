create or replace function pgq_node.set_subscriber_watermark(
    in i_queue_name text,
    in i_node_name text,
    in i_watermark bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Store the lowest tick that a subscriber and everything below it still need.
--
-- Parameters: i_queue_name - cascaded queue; i_node_name - subscriber node;
--             i_watermark - tick id.
-- Returns: 200 moved; 100 already there; 404 not a subscriber; 405 would move backwards.
-- Writes: pgq subscription of ".<node>.watermark".
-- Raises: errors of pgq.register_consumer_at when the tick does not exist here.
-- ----------------------------------------------------------------------
declare
    _name text;
    _current bigint;
begin
    select s.watermark_name
    into _name
    from pgq_node.subscriber_info s
    where s.queue_name = i_queue_name
        and s.subscriber_node = i_node_name;
    if not found then
        ret_code := 404;
        ret_note := 'node ' || i_node_name || ' not subscribed to queue ' || i_queue_name;
        return;
    end if;

    _current := pgq_node.consumer_tick(i_queue_name, _name);
    if i_watermark is null or i_watermark = _current then
        ret_code := 100;
        ret_note := 'watermark already set';
        return;
    end if;
    if i_watermark < _current then
        ret_code := 405;
        ret_note := 'watermark must not be moved backwards';
        return;
    end if;

    perform pgq.register_consumer_at(i_queue_name, _name, i_watermark);
    ret_code := 200;
    ret_note := _name || ' set to ' || i_watermark;
end;
$$;
