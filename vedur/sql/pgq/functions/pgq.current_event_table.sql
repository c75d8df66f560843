create or replace function pgq.current_event_table(x_queue_name text)
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Names the event table to write to, for producers that load many events at once with COPY or INSERT.
-- The answer holds for the current transaction only.
--
-- Parameters:
--     x_queue_name    name of the queue
-- Returns: qualified table name, quoted
-- Writes: nothing
-- Raises: Event queue not found; Writing to queue disabled
-- ----------------------------------------------------------------------
declare
    _table text;
    _disabled boolean;
begin
    select pgq.quote_fqname(queue_data_pfx || '_' || queue_cur_table), queue_disable_insert
    into _table, _disabled
    from pgq.queue
    where queue_name = x_queue_name;
    if not found then
        raise exception 'Event queue not found';
    end if;
    if _disabled and current_setting('session_replication_role') <> 'replica' then
        raise exception 'Writing to queue disabled';
    end if;
    return _table;
end;
$$;
