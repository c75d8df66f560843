create or replace function pgq.batch_event_tables(x_batch_id bigint)
returns setof text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Names the event tables that may hold events of a batch: all of its queue.
--
-- Leaving tables out by the time of the switch would lose events of a transaction whose snapshot is older than the switch;
-- it writes to the table that was current in its snapshot, at any later time. A table without such events costs one look
-- into its index.
--
-- Parameters:
--     x_batch_id      open batch
-- Returns: qualified table names, quoted
-- Writes: nothing
-- Raises: Cannot find data for batch N
-- ----------------------------------------------------------------------
begin
    return query
    select pgq.quote_fqname(q.queue_data_pfx || '_' || nr)
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    cross join lateral generate_series(0, q.queue_ntables - 1) nr
    where s.sub_batch = x_batch_id
    order by nr;
    if not found then
        raise exception 'Cannot find data for batch %', x_batch_id;
    end if;
end;
$$;
