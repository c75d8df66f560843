create or replace function vedur.write_moment(i_queue_name text, i_tick_id bigint, i_snapshot text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Writes a tick from the snapshot of this transaction, which imported it from the one that will read the tables. Session:
-- the one that called vedur.begin_moment. Ticks stay monotone: no ticker could write between the lock and this, since all of
-- them need the same lock, and the snapshot was taken after the lock, so it is newer than that of every earlier tick.
--
-- Parameters:
--     i_queue_name    queue
--     i_tick_id       answer of vedur.begin_moment
--     i_snapshot      text of the snapshot that was exported
-- Returns: i_tick_id
-- Writes: pgq.tick; notifies channel pgq_tick
-- Raises: object_not_in_prerequisite_state if the lock is not held, if this transaction has another snapshot, or if the
--     snapshot is older than the lock
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _last pgq.tick%rowtype;
begin
    select * into strict _queue from pgq.queue where queue_name = i_queue_name;
    if not exists (
        select 1
        from pg_locks
        where locktype = 'advisory' and pid = pg_backend_pid() and granted and objsubid = 2
            and database = (select oid from pg_database where datname = current_database())
            and classid = 1885827444 and objid = _queue.queue_id
    ) then
        raise exception 'the ticker lock of queue "%" is not held: call vedur.begin_moment first', i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    if txid_current_snapshot()::text <> i_snapshot then
        raise exception 'this transaction sees %, the exported snapshot is %', txid_current_snapshot(), i_snapshot
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    -- The sequence obeys no snapshot: any tick written after the lock would show here.
    if pg_sequence_last_value(_queue.queue_tick_seq::regclass) <> i_tick_id then
        raise exception 'tick % of queue "%" is not the next one', i_tick_id, i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    select * into _last from pgq.tick where tick_queue = _queue.queue_id order by tick_id desc limit 1;
    if txid_snapshot_xmin(_last.tick_snapshot) > txid_snapshot_xmin(txid_current_snapshot())
        or txid_snapshot_xmax(_last.tick_snapshot) > txid_snapshot_xmax(txid_current_snapshot())
    then
        raise exception 'tick % of queue "%" has a newer snapshot', _last.tick_id, i_queue_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    insert into pgq.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)
    values (
        _queue.queue_id, i_tick_id, greatest(now(), _last.tick_time), txid_current_snapshot(),
        coalesce(pg_sequence_last_value(_queue.queue_event_seq::regclass), _last.tick_event_seq, 1));
    perform pgq._notify_tick(i_queue_name, i_tick_id);
    return i_tick_id;
end;
$$;
