create or replace function pgq.find_tick_helper(
    i_queue_id integer,
    i_prev_tick_id bigint,
    i_prev_tick_time timestamptz,
    i_prev_tick_seq bigint,
    i_min_count bigint,
    i_min_interval interval,
    out next_tick_id bigint,
    out next_tick_time timestamptz,
    out next_tick_seq bigint
)
language plpgsql
stable
as $$
-- ----------------------------------------------------------------------
-- Finds the tick that ends a batch of a requested size. The last tick is taken if it is enough and not twice too much;
-- else the first one that is enough.
--
-- Parameters:
--     i_queue_id          queue
--     i_prev_tick_id, i_prev_tick_time, i_prev_tick_seq   tick where the batch begins
--     i_min_count         requested number of events (estimate), or
--     i_min_interval      requested time
-- Returns: the tick; all null if there is none yet, or nothing is requested
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _count bigint;
    _time interval;
begin
    select t.tick_id, t.tick_time, t.tick_event_seq
    into next_tick_id, next_tick_time, next_tick_seq
    from pgq.tick t
    where t.tick_queue = i_queue_id
        and t.tick_id > i_prev_tick_id
    order by t.tick_id desc
    limit 1;
    if not found then
        return;
    end if;

    _count := next_tick_seq - i_prev_tick_seq;
    _time := next_tick_time - i_prev_tick_time;
    if (_count >= i_min_count or _time >= i_min_interval) is not true then
        next_tick_id := null;
        next_tick_time := null;
        next_tick_seq := null;
        return;
    end if;
    if (_count > 2 * i_min_count or _time > 2 * i_min_interval) is not true then
        return;
    end if;

    select t.tick_id, t.tick_time, t.tick_event_seq
    into next_tick_id, next_tick_time, next_tick_seq
    from pgq.tick t
    where t.tick_queue = i_queue_id
        and t.tick_id > i_prev_tick_id
        and (t.tick_event_seq - i_prev_tick_seq >= i_min_count or t.tick_time - i_prev_tick_time >= i_min_interval)
    order by t.tick_id
    limit 1;
end;
$$;
