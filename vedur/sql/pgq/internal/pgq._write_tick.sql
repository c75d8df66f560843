create or replace function pgq._write_tick(i_queue_id integer)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Stores a tick with the snapshot of now. The caller holds the lock of pgq._lock_ticker.
--
-- Parameters:
--     i_queue_id      queue
-- Returns: id of the tick
-- Writes: pgq.tick; notifies channel pgq_tick
-- Raises: serialization_failure in an isolation level whose snapshot is older than the lock, if someone ticked in between;
--     object_not_in_prerequisite_state if the sequence of ticks counts down
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _last_id bigint;
    _last_time timestamptz;
    _tick_id bigint;
begin
    select * into _queue
    from pgq.queue
    where queue_id = i_queue_id;
    select tick_id, tick_time into _last_id, _last_time
    from pgq.tick
    where tick_queue = i_queue_id
    order by tick_id desc
    limit 1;

    -- With a snapshot that was frozen before the lock, a tick of someone else may exist that we do not see; ours would then
    -- have the greater id and the older snapshot. The sequence tells, as it obeys no snapshot.
    if current_setting('transaction_isolation') <> 'read committed'
        and pg_sequence_last_value(_queue.queue_tick_seq::regclass) > coalesce(_last_id, 0)
    then
        raise exception 'queue "%" has been ticked by another transaction: tick in isolation level read committed',
            _queue.queue_name
            using errcode = 'serialization_failure';
    end if;

    -- Consumers read ticks in the order of their ids. A sequence with a cache gives each session numbers of its own, and one
    -- that was set back gives numbers that were used.
    _tick_id := nextval(_queue.queue_tick_seq::regclass);
    if _tick_id <= _last_id then
        perform setval(_queue.queue_tick_seq::regclass, _last_id);
        _tick_id := nextval(_queue.queue_tick_seq::regclass);
        if _tick_id <= _last_id then
            raise exception 'sequence "%" gives tick % after tick %: alter it to increment 1', _queue.queue_tick_seq, _tick_id, _last_id
                using errcode = 'object_not_in_prerequisite_state';
        end if;
    end if;

    -- now() is the start of the transaction, which may lie before a tick we waited for. A sequence that was never used
    -- counts as 0: its last_value is 1 before the first event and after it, which would go unnoticed.
    insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq)
    values (
        i_queue_id, _tick_id, greatest(now(), _last_time),
        coalesce(pg_sequence_last_value(_queue.queue_event_seq::regclass), 0));
    perform pgq._notify_tick(_queue.queue_name, _tick_id);
    return _tick_id;
end;
$$;
