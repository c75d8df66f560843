create or replace function pgq.batch_retry(i_batch_id bigint, i_retry_seconds integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Asks for all events of an open batch again.
--
-- Parameters:
--     i_batch_id      open batch
--     i_retry_seconds not before so many seconds from now
-- Returns: number of events noted; those that wait for a retry already are not counted
-- Writes: pgq.retry_queue
-- Raises: batch_retry: batch N not found
-- ----------------------------------------------------------------------
declare
    _sub pgq.subscription%rowtype;
    _count integer;
begin
    select * into _sub
    from pgq.subscription
    where sub_batch = i_batch_id;
    if not found then
        raise exception 'batch_retry: batch % not found', i_batch_id;
    end if;

    insert into pgq.retry_queue (
        ev_retry_after, ev_queue, ev_id, ev_time, ev_txid, ev_owner, ev_retry,
        ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    select
        now() + make_interval(secs => i_retry_seconds), _sub.sub_queue, e.ev_id, e.ev_time, null, _sub.sub_id,
        coalesce(e.ev_retry, 0) + 1, e.ev_type, e.ev_data, e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4
    from pgq.get_batch_events(i_batch_id) e
    on conflict (ev_owner, ev_id) do nothing;
    get diagnostics _count = row_count;
    return _count;
end;
$$;
