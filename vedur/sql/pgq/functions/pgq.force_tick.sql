create or replace function pgq.force_tick(i_queue_name text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Makes the ticker tick a queue at its next turn. It does not tick itself; it moves the event sequence, so that the queue
-- looks full. Callers wait until the last tick is greater than the returned one.
--
-- Parameters:
--     i_queue_name    name of the queue
-- Returns: id of the last tick now; null if there is no such queue
-- Writes: the event sequence, unless the queue ticks externally or is paused
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
begin
    select * into _queue
    from pgq.queue
    where queue_name = i_queue_name;
    if not found then
        return null;
    end if;
    if not _queue.queue_external_ticker and not _queue.queue_ticker_paused then
        -- nextval and not setval: a setval computed from an older value could take the sequence back under a busy producer,
        -- and event ids would repeat.
        perform max(nextval(_queue.queue_event_seq))
        from generate_series(1, 2 * _queue.queue_ticker_max_count::bigint + 1001);
    end if;
    return (select max(tick_id) from pgq.tick where tick_queue = _queue.queue_id);
end;
$$;
