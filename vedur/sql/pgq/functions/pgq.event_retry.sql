create or replace function pgq.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_time timestamptz)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Asks for one event of an open batch again, after a given time. Only the asking consumer gets it again.
--
-- Parameters:
--     x_batch_id      open batch
--     x_event_id      event in it
--     x_retry_time    not before this time
-- Returns: 1 noted, 0 it waits for a retry already
-- Writes: pgq.retry_queue
-- Raises: event not found
-- ----------------------------------------------------------------------
declare
    _sub pgq.subscription%rowtype;
    _event record;
begin
    select * into _sub
    from pgq.subscription
    where sub_batch = x_batch_id;
    if not found then
        raise exception 'event not found';
    end if;

    execute format('select * from (%s) as events where ev_id = $1', pgq.batch_event_sql(x_batch_id))
    into _event
    using x_event_id;
    if _event.ev_id is null then
        raise exception 'event not found';
    end if;

    insert into pgq.retry_queue (
        ev_retry_after, ev_queue, ev_id, ev_time, ev_txid, ev_owner, ev_retry,
        ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (
        x_retry_time, _sub.sub_queue, _event.ev_id, _event.ev_time, null, _sub.sub_id, coalesce(_event.ev_retry, 0) + 1,
        _event.ev_type, _event.ev_data, _event.ev_extra1, _event.ev_extra2, _event.ev_extra3, _event.ev_extra4)
    on conflict (ev_owner, ev_id) do nothing;
    return case when found then 1 else 0 end;
end;
$$;

create or replace function pgq.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_seconds integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Asks for one event of an open batch again, after a number of seconds.
--
-- Parameters:
--     x_batch_id      open batch
--     x_event_id      event in it
--     x_retry_seconds not before so many seconds from now
-- Returns: 1 noted, 0 it waits for a retry already
-- Writes: pgq.retry_queue
-- Raises: event not found
-- ----------------------------------------------------------------------
begin
    return pgq.event_retry(x_batch_id, x_event_id, now() + make_interval(secs => x_retry_seconds));
end;
$$;
