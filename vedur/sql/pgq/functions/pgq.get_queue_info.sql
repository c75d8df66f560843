create or replace function pgq.get_queue_info(
    i_queue_name text,
    out queue_name text,
    out queue_ntables integer,
    out queue_cur_table integer,
    out queue_rotation_period interval,
    out queue_switch_time timestamptz,
    out queue_external_ticker boolean,
    out queue_ticker_paused boolean,
    out queue_ticker_max_count integer,
    out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval,
    out ticker_lag interval,
    out ev_per_sec double precision,
    out ev_new bigint,
    out last_tick_id bigint
)
returns setof record
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Describes queues: their settings and how they tick.
--
-- Parameters:
--     i_queue_name    name of the queue; null: all
-- Returns: a row per queue, by name; ticker_lag is the age of the last tick, ev_per_sec the rate over the
--     last 20 ticks (null with fewer than two), ev_new the events since the last tick (estimate)
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query
    select q.queue_name, q.queue_ntables, q.queue_cur_table, q.queue_rotation_period, q.queue_switch_time,
        q.queue_external_ticker, q.queue_ticker_paused, q.queue_ticker_max_count, q.queue_ticker_max_lag,
        q.queue_ticker_idle_period,
        now() - last.tick_time,
        (last.tick_event_seq - old.tick_event_seq)
            / nullif(extract(epoch from last.tick_time - old.tick_time), 0)::double precision,
        -- null for a sequence that was never used: no events
        coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), last.tick_event_seq) - last.tick_event_seq,
        last.tick_id
    from pgq.queue q
    left join lateral (
        select t.tick_id, t.tick_time, t.tick_event_seq
        from pgq.tick t
        where t.tick_queue = q.queue_id
        order by t.tick_id desc
        limit 1
    ) last on true
    left join lateral (
        select t.tick_time, t.tick_event_seq
        from pgq.tick t
        where t.tick_queue = q.queue_id
            and t.tick_id >= last.tick_id - 20
            and t.tick_id < last.tick_id
        order by t.tick_id
        limit 1
    ) old on true
    where i_queue_name is null
        or q.queue_name = i_queue_name
    order by q.queue_name;
end;
$$;

create or replace function pgq.get_queue_info(
    out queue_name text,
    out queue_ntables integer,
    out queue_cur_table integer,
    out queue_rotation_period interval,
    out queue_switch_time timestamptz,
    out queue_external_ticker boolean,
    out queue_ticker_paused boolean,
    out queue_ticker_max_count integer,
    out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval,
    out ticker_lag interval,
    out ev_per_sec double precision,
    out ev_new bigint,
    out last_tick_id bigint
)
returns setof record
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Describes all queues.
--
-- Parameters: none
-- Returns: as pgq.get_queue_info(1)
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query select * from pgq.get_queue_info(null);
end;
$$;
