create or replace function pgq.ticker(
    i_queue_name text, i_tick_id bigint, i_orig_timestamp timestamptz, i_event_seq bigint
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Stores a tick that was made on another node, in a queue with external ticker.
--
-- Parameters:
--     i_queue_name     name of the queue
--     i_tick_id        id it has there; must be after all ticks here
--     i_orig_timestamp time it was made
--     i_event_seq      value of the event sequence there
-- Returns: i_tick_id
-- Writes: pgq.tick, both sequences of the queue; notifies channel pgq_tick
-- Raises: queue not found or ticker disabled: q; not_null_violation; unique_violation if the tick exists;
--     object_not_in_prerequisite_state if it is behind the last one
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _last bigint;
begin
    select * into _queue
    from pgq.queue
    where queue_name = i_queue_name
        and queue_external_ticker
        and not queue_ticker_paused;
    if not found then
        raise exception 'queue not found or ticker disabled: %', i_queue_name;
    end if;

    perform pgq._lock_ticker(_queue.queue_id, true);
    select max(tick_id) into _last from pgq.tick where tick_queue = _queue.queue_id;
    if i_tick_id < _last then
        raise exception 'tick % is behind the last tick % of queue "%": ticks must come in their order',
            i_tick_id, _last, i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq)
    values (_queue.queue_id, i_tick_id, i_orig_timestamp, i_event_seq);
    perform pgq.seq_setval(_queue.queue_tick_seq, i_tick_id);
    perform pgq.seq_setval(_queue.queue_event_seq, i_event_seq);
    perform pgq._notify_tick(i_queue_name, i_tick_id);
    return i_tick_id;
end;
$$;

create or replace function pgq.ticker(i_queue_name text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Ticks one queue if it is due (see pgq._due_ticks for the rule).
--
-- Parameters:
--     i_queue_name    name of the queue
-- Returns: id of the new tick; null if none was due
-- Writes: pgq.tick; notifies channel pgq_tick
-- Raises: no such queue; This queue has external tick source.; Ticker has been paused for this queue;
--     as pgq._due_ticks and pgq._write_tick
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
begin
    select * into _queue
    from pgq.queue
    where queue_name = i_queue_name;
    if not found then
        raise exception 'no such queue';
    end if;
    if _queue.queue_external_ticker then
        raise exception 'This queue has external tick source.';
    end if;
    if _queue.queue_ticker_paused then
        raise exception 'Ticker has been paused for this queue';
    end if;

    if not exists (select 1 from pgq._due_ticks(_queue.queue_id)) then
        return null;
    end if;
    -- Whoever held the lock may have ticked meanwhile: ask again, with a snapshot taken after the lock.
    perform pgq._lock_ticker(_queue.queue_id, true);
    if not exists (select 1 from pgq._due_ticks(_queue.queue_id)) then
        return null;
    end if;
    return pgq._write_tick(_queue.queue_id);
end;
$$;

create or replace function pgq.ticker()
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Ticks all queues that are due. A queue that someone else is ticking right now is left to them.
--
-- Parameters: none
-- Returns: number of queues ticked
-- Writes: pgq.tick; notifies channel pgq_tick
-- Raises: as pgq._due_ticks and pgq._write_tick
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _count bigint := 0;
begin
    for _queue_id in
        select d.queue_id from pgq._due_ticks(null) d
    loop
        continue when not pgq._lock_ticker(_queue_id, false);
        continue when not exists (select 1 from pgq._due_ticks(_queue_id));
        perform pgq._write_tick(_queue_id);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
