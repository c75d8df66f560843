create or replace function pgq.get_consumer_info(
    i_queue_name text,
    i_consumer_name text,
    out queue_name text,
    out consumer_name text,
    out lag interval,
    out last_seen interval,
    out last_tick bigint,
    out current_batch bigint,
    out next_tick bigint,
    out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Describes consumers: how far behind they are.
--
-- Parameters:
--     i_queue_name    name of the queue; null: all
--     i_consumer_name name of the consumer; null: all
-- Returns: a row per subscription, by queue and consumer; lag is the age of the last finished tick, last_seen the time
--     since the last call, current_batch and next_tick the open batch (or null), pending_events the ticked events not
--     finished (estimate); lag and pending_events are null if the tick of the consumer is gone
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query
    select q.queue_name, c.co_name, now() - t.tick_time, now() - s.sub_active,
        s.sub_last_tick, s.sub_batch, s.sub_next_tick,
        top.tick_event_seq - t.tick_event_seq
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    left join pgq.tick t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
    left join lateral (
        select l.tick_event_seq
        from pgq.tick l
        where l.tick_queue = s.sub_queue
        order by l.tick_id desc
        limit 1
    ) top on true
    where (i_queue_name is null or q.queue_name = i_queue_name)
        and (i_consumer_name is null or c.co_name = i_consumer_name)
    order by q.queue_name, c.co_name;
end;
$$;

create or replace function pgq.get_consumer_info(
    i_queue_name text,
    out queue_name text,
    out consumer_name text,
    out lag interval,
    out last_seen interval,
    out last_tick bigint,
    out current_batch bigint,
    out next_tick bigint,
    out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Describes the consumers of one queue.
--
-- Parameters:
--     i_queue_name    name of the queue; null: all
-- Returns: as pgq.get_consumer_info(2)
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query select * from pgq.get_consumer_info(i_queue_name, null);
end;
$$;

create or replace function pgq.get_consumer_info(
    out queue_name text,
    out consumer_name text,
    out lag interval,
    out last_seen interval,
    out last_tick bigint,
    out current_batch bigint,
    out next_tick bigint,
    out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Describes all consumers.
--
-- Parameters: none
-- Returns: as pgq.get_consumer_info(2)
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return query select * from pgq.get_consumer_info(null, null);
end;
$$;
