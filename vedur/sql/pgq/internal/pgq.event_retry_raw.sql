create or replace function pgq.event_retry_raw(
    x_queue text,
    x_consumer text,
    x_retry_after timestamptz,
    x_ev_id bigint,
    x_ev_time timestamptz,
    x_ev_retry integer,
    x_ev_type text,
    x_ev_data text,
    x_ev_extra1 text,
    x_ev_extra2 text,
    x_ev_extra3 text,
    x_ev_extra4 text
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Puts an event of any origin into the retry queue of a consumer.
--
-- Parameters:
--     x_queue, x_consumer         who should get it
--     x_retry_after               not before this time
--     x_ev_id                     id; null: the next one of the queue
--     x_ev_time, x_ev_retry       time, and how often it was retried
--     x_ev_type .. x_ev_extra4    content
-- Returns: its id
-- Writes: pgq.retry_queue
-- Raises: consumer not registered; unique_violation if it waits already; not_null_violation
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _sub_id integer;
    _id bigint := x_ev_id;
    _seq text;
begin
    select s.sub_queue, s.sub_id, q.queue_event_seq
    into _queue_id, _sub_id, _seq
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = x_queue
        and c.co_name = x_consumer;
    if not found then
        raise exception 'consumer not registered';
    end if;

    if _id is null then
        _id := nextval(_seq);
    end if;
    insert into pgq.retry_queue (
        ev_retry_after, ev_queue, ev_id, ev_time, ev_txid, ev_owner, ev_retry,
        ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (
        x_retry_after, _queue_id, _id, x_ev_time, null, _sub_id, x_ev_retry,
        x_ev_type, x_ev_data, x_ev_extra1, x_ev_extra2, x_ev_extra3, x_ev_extra4);
    return _id;
end;
$$;
