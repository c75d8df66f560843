create or replace function vedur.begin_moment(i_queue_name text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Keeps every ticker of a queue out and reserves the id of the next tick. The lock belongs to the session and is the one of
-- pgq._lock_ticker: take the snapshot after this, write the tick with vedur.write_moment, let go with vedur.end_moment.
-- If the session dies the lock goes with it, and the reserved id stays a gap, which is harmless.
--
-- Parameters:
--     i_queue_name    queue, with a ticker of its own
-- Returns: id of the tick to be written
-- Writes: the queue's tick sequence
-- Raises: undefined_object for an unknown queue; object_not_in_prerequisite_state for one that takes its ticks from elsewhere
--     or is paused
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
begin
    select * into _queue from pgq.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'queue "%" does not exist', i_queue_name using errcode = 'undefined_object';
    end if;
    if _queue.queue_external_ticker or _queue.queue_ticker_paused then
        raise exception 'queue "%" takes no tick of its own now', i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    perform pg_advisory_lock(1885827444, _queue.queue_id);
    return nextval(_queue.queue_tick_seq::regclass);
end;
$$;
