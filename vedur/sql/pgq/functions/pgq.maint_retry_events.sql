create or replace function pgq.maint_retry_events()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Puts events whose time has come back into their queues, a few at a time. Queues that refuse inserts are passed over.
--
-- Parameters: none
-- Returns: number of events moved, at most 10; call again until it is 0
-- Writes: pgq.retry_queue, current event tables
-- Raises: as pgq.insert_event_raw
-- ----------------------------------------------------------------------
declare
    _event record;
    _count integer := 0;
begin
    for _event in
        with due as (
            select r.ev_owner, r.ev_id
            from pgq.retry_queue r
            join pgq.queue q on q.queue_id = r.ev_queue
            where r.ev_retry_after <= now()
                and (not q.queue_disable_insert or current_setting('session_replication_role') = 'replica')
            order by r.ev_retry_after
            limit 10
            for update of r skip locked
        )
        delete from pgq.retry_queue r
        using due, pgq.queue q
        where r.ev_owner = due.ev_owner
            and r.ev_id = due.ev_id
            and q.queue_id = r.ev_queue
        returning q.queue_name, r.*
    loop
        perform pgq.insert_event_raw(
            _event.queue_name, _event.ev_id, _event.ev_time, _event.ev_owner, _event.ev_retry,
            _event.ev_type, _event.ev_data, _event.ev_extra1, _event.ev_extra2, _event.ev_extra3, _event.ev_extra4);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
