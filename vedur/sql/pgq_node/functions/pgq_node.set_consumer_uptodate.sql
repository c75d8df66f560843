create or replace function pgq_node.set_consumer_uptodate(
    in i_queue_name text,
    in i_consumer_name text,
    in i_uptodate boolean,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- The consumer says that it has seen the latest request of the operator.
--
-- Parameters: i_queue_name - cascaded queue; i_consumer_name - consumer; i_uptodate - flag.
-- Returns: 200 stored; 404 unknown consumer.
-- Writes: pgq_node.local_state.
-- Raises: not-null violation without flag.
-- ----------------------------------------------------------------------
begin
    update pgq_node.local_state s
    set uptodate = i_uptodate
    where s.queue_name = i_queue_name
        and s.consumer_name = i_consumer_name;
    if not found then
        ret_code := 404;
        ret_note := 'Consumer not known: ' || i_queue_name || '/' || i_consumer_name;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Consumer uptodate = ' || i_uptodate::integer;
end;
$$;
