create or replace function pgq.maint_rotate_tables_step1(i_queue_name text)
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Rotates the event tables of a queue, if it is time and nobody needs the oldest one: empties it and makes it current.
-- Must be committed before step 2.
--
-- A table is emptied only when every row in it is visible in all positions a consumer may stand at: its greatest ev_txid is
-- below the oldest transaction those positions wait for. Looking at the rows, and not at the time of the switch alone,
-- covers a producer that chose its table from a snapshot older than the switch (repeatable read) and wrote long after it.
--
-- Parameters:
--     i_queue_name    name of the queue
-- Returns: 0
-- Writes: pgq.queue, pgq.tick (ticks whose events are gone); truncates an event table
-- Raises: feature_not_supported outside isolation level read committed
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _needed bigint;
    _next integer;
    _table text;
    _greatest bigint;
    _attempt integer := 0;
begin
    -- An older snapshot would not see rows committed while we waited for the lock.
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'tables of queue "%" cannot be rotated in isolation level %: use read committed',
            i_queue_name, current_setting('transaction_isolation')
            using errcode = 'feature_not_supported';
    end if;

    select * into _queue
    from pgq.queue
    where queue_name = i_queue_name
        and queue_switch_step2 is not null
        and queue_switch_time + queue_rotation_period < now()
    for no key update;
    if not found then
        return 0;
    end if;

    -- Positions that count: those of consumers, and the last tick, where the next consumer will start.
    select min(txid_snapshot_xmin(t.tick_snapshot)) into _needed
    from pgq.tick t
    where t.tick_queue = _queue.queue_id
        and (
            t.tick_id = (select max(l.tick_id) from pgq.tick l where l.tick_queue = _queue.queue_id)
            or t.tick_id in (select s.sub_last_tick from pgq.subscription s where s.sub_queue = _queue.queue_id));
    if _needed <= _queue.queue_switch_step2 then
        return 0;
    end if;

    _next := (_queue.queue_cur_table + 1) % _queue.queue_ntables;
    _table := pgq.quote_fqname(_queue.queue_data_pfx || '_' || _next);
    -- Readers of a busy queue are in it nearly always, so one look would hardly ever find it free. To wait in the queue of the
    -- lock would make them all wait with us. Pauses differ, lest they keep step with a reader's.
    loop
        begin
            execute format('lock table only %s in access exclusive mode nowait', _table);
            exit;
        exception
            when lock_not_available then
                _attempt := _attempt + 1;
        end;
        if _attempt >= 20 then
            return 0;  -- a long transaction or pg_dump is in it; the next round will do
        end if;
        perform pg_sleep(0.005 + 0.01 * random());
    end loop;
    execute format('select max(ev_txid) from only %s', _table) into _greatest;
    if _greatest >= _needed then
        return 0;
    end if;
    execute format('truncate only %s', _table);

    update pgq.queue
    set queue_cur_table = _next,
        queue_switch_time = now(),
        queue_switch_step1 = txid_current(),
        queue_switch_step2 = null
    where queue_id = _queue.queue_id;

    delete from pgq.tick
    where tick_queue = _queue.queue_id
        and txid_snapshot_xmin(tick_snapshot) < greatest(_queue.queue_switch_step2, _greatest + 1);
    return 0;
end;
$$;
