create or replace function pgq._lock_ticker(i_queue_id integer, i_wait boolean)
returns boolean
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Takes the right to tick a queue, until the end of the transaction.
--
-- Whoever stores a tick must hold it before the tick's snapshot is taken; so ticks and snapshots grow together, however
-- many tickers run. In read committed the next statement has a new snapshot; elsewhere see pgq._write_tick.
-- The same lock at session level: pg_advisory_lock(1885827444, queue_id).
--
-- Parameters:
--     i_queue_id      queue
--     i_wait          true: wait for it; false: give up if someone else has it
-- Returns: true if taken
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    -- 1885827444 spells "pgqt".
    if i_wait then
        perform pg_catalog.pg_advisory_xact_lock(1885827444, i_queue_id);
        return true;
    end if;
    return pg_catalog.pg_try_advisory_xact_lock(1885827444, i_queue_id);
end;
$$;
