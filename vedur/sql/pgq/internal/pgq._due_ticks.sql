create or replace function pgq._due_ticks(i_queue_id integer)
returns table (queue_id integer)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Finds queues that should tick now:
-- - with new events: enough of them (queue_ticker_max_count), or the last tick is old enough (queue_ticker_max_lag);
-- - idle: when the last tick is older than half of max_lag and twice as old as the gap before it, or than
--   queue_ticker_idle_period; so gaps double until they reach the idle period;
-- - without a gap to go by (fewer than two ticks): at once;
-- - when the last tick lies ahead: the clock was set back, and waiting until it is there again would stop replication.
-- Queues with external or paused ticker are never due.
--
-- Parameters:
--     i_queue_id      queue; null: all
-- Returns: due queues
-- Writes: nothing
-- Raises: data_corrupted if the last tick is from the future
-- ----------------------------------------------------------------------
declare
    _due record;
begin
    for _due in
        select q.queue_id, q.queue_name, last.tick_id, txid_snapshot_xmin(last.tick_snapshot) as xmin,
            txid_snapshot_xmax(txid_current_snapshot()) as next_txid
        from pgq.queue q
        left join lateral (
            select t.tick_id, t.tick_time, t.tick_snapshot, t.tick_event_seq, now() - t.tick_time as age
            from pgq.tick t
            where t.tick_queue = q.queue_id
            order by t.tick_id desc
            limit 1
        ) last on true
        left join lateral (
            select t.tick_time
            from pgq.tick t
            where t.tick_queue = q.queue_id
                and t.tick_id < last.tick_id
            order by t.tick_id desc
            limit 1
        ) prev on true
        where (i_queue_id is null or q.queue_id = i_queue_id)
            and not q.queue_external_ticker
            and not q.queue_ticker_paused
            and case
                when last.tick_id is null or prev.tick_time is null then true
                when last.age < '-1 second'::interval then true
                -- null for a sequence that was never used: no events
                when pg_sequence_last_value(q.queue_event_seq::regclass) - last.tick_event_seq
                        >= greatest(q.queue_ticker_max_count, 1)
                    then true
                when pg_sequence_last_value(q.queue_event_seq::regclass) > last.tick_event_seq
                    then last.age >= q.queue_ticker_max_lag
                else last.age >= q.queue_ticker_max_lag / 2
                    and (last.age >= 2 * (last.tick_time - prev.tick_time) or last.age >= q.queue_ticker_idle_period)
            end
    loop
        if _due.xmin > _due.next_txid then
            raise exception 'tick % of queue "%" waits for transaction %, but this server is only at %: restored from a dump?',
                _due.tick_id, _due.queue_name, _due.xmin, _due.next_txid
                using errcode = 'data_corrupted',
                    hint = 'Events would be lost or repeated. Drop and create the queue again, or reset the server''s '
                        'transaction epoch with pg_resetwal.';
        end if;
        queue_id := _due.queue_id;
        return next;
    end loop;
end;
$$;
