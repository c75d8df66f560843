create or replace function pgq._notify_tick(i_queue_name text, i_tick_id bigint)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tells listeners of channel "pgq_tick" that a tick is there. Only a hint that saves waiting: nothing may depend on it.
--
-- Parameters:
--     i_queue_name    name of the queue
--     i_tick_id       new tick
-- Returns: nothing; the payload is "queue_name:tick_id", sent at commit
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    -- A payload must be shorter than 8000 bytes, a queue name need not.
    if pg_catalog.octet_length(i_queue_name) < 7900 then
        perform pg_catalog.pg_notify('pgq_tick', i_queue_name || ':' || i_tick_id);
    end if;
end;
$$;
