create or replace function pgq._check_tx_limit(i_queue_id integer, i_queue_name text, i_limit integer)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Counts one more event of this transaction against queue_per_tx_limit. Call it only where a limit is set.
-- The count lives in a transaction-local setting: it costs no table access, ends with the transaction and
-- goes back with a savepoint.
--
-- Parameters:
--     i_queue_id      queue
--     i_queue_name    its name, for the message
--     i_limit         most events allowed; null or negative: no limit
-- Returns: nothing
-- Writes: nothing
-- Raises: Queue '...' allows max N events from one TX
-- ----------------------------------------------------------------------
declare
    _setting text := 'pgq.tx_events_' || i_queue_id::pg_catalog.text;
    _count integer := coalesce(nullif(pg_catalog.current_setting(_setting, true), ''), '0')::integer + 1;
begin
    if i_limit is null or i_limit < 0 then
        return;
    end if;
    if _count > i_limit then
        raise exception 'Queue ''%'' allows max % events from one TX', i_queue_name, i_limit;
    end if;
    perform pg_catalog.set_config(_setting, _count::text, true);
end;
$$;
