create or replace function pgq_node.set_consumer_paused(
    in i_queue_name text,
    in i_consumer_name text,
    in i_paused boolean,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Ask a consumer to stop or to go on; it answers by setting uptodate.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_paused - the requested state.
-- Returns: 200 request stored; 201 it is so already; 404 unknown consumer.
-- Writes: pgq_node.local_state (uptodate becomes false).
-- Raises: not-null violation without a requested state.
-- ----------------------------------------------------------------------
declare
    _old boolean;
    _word text := case when i_paused then 'paused' else 'resumed' end;
begin
    select s.paused
    into _old
    from pgq_node.local_state s
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name
    for update;
    if not found then
        ret_code := 404;
        ret_note := 'Unknown consumer: ' || i_consumer_name;
        return;
    end if;
    if _old = i_paused then
        ret_code := 201;
        ret_note := 'Consumer ' || i_consumer_name || ' already ' || _word;
        return;
    end if;

    update pgq_node.local_state s
    set paused = i_paused,
        uptodate = false
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    ret_code := 200;
    ret_note := 'Consumer ' || i_consumer_name || ' tagged as ' || _word;
end;
$$;
