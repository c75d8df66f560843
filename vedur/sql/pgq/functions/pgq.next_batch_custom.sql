create or replace function pgq.next_batch_custom(
    i_queue_name text,
    i_consumer_name text,
    i_min_lag interval,
    i_min_count integer,
    i_min_interval interval,
    out batch_id bigint,
    out cur_tick_id bigint,
    out prev_tick_id bigint,
    out cur_tick_time timestamptz,
    out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint,
    out prev_tick_event_seq bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Opens the next batch of a consumer, of a requested size. A batch that is open already is returned again, whatever is requested.
--
-- Parameters:
--     i_queue_name    name of the queue
--     i_consumer_name name of the consumer
--     i_min_lag       only events at least so old; null: any
--     i_min_count     at least so many events (estimate), or
--     i_min_interval  at least so much time; both null: up to the next tick
-- Returns: batch_id, its upper tick (cur_tick_*) and lower tick (prev_tick_*); all null if there is no such batch yet
-- Writes: pgq.subscription
-- Raises: Not subscriber to queue: q/c; PgQ corruption: Consumer c on queue q does not see tick N
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _consumer_id integer;
    _next_tick bigint;
begin
    select s.sub_queue, s.sub_consumer, s.sub_batch, s.sub_last_tick, s.sub_next_tick
    into _queue_id, _consumer_id, batch_id, prev_tick_id, _next_tick
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = i_queue_name
        and c.co_name = i_consumer_name
    for no key update of s;
    if not found then
        raise exception 'Not subscriber to queue: %/%', coalesce(i_queue_name, 'NULL'), coalesce(i_consumer_name, 'NULL');
    end if;

    select t.tick_time, t.tick_event_seq
    into prev_tick_time, prev_tick_event_seq
    from pgq.tick t
    where t.tick_queue = _queue_id
        and t.tick_id = prev_tick_id;
    if not found then
        raise exception 'PgQ corruption: Consumer % on queue % does not see tick %', i_consumer_name, i_queue_name, prev_tick_id;
    end if;

    if batch_id is not null then
        select t.tick_id, t.tick_time, t.tick_event_seq
        into cur_tick_id, cur_tick_time, cur_tick_event_seq
        from pgq.tick t
        where t.tick_queue = _queue_id
            and t.tick_id = _next_tick;
        if not found then
            raise exception 'PgQ corruption: Consumer % on queue % does not see tick %', i_consumer_name, i_queue_name, _next_tick;
        end if;
        return;
    end if;

    if i_min_count is null and i_min_interval is null then
        select t.tick_id, t.tick_time, t.tick_event_seq
        into cur_tick_id, cur_tick_time, cur_tick_event_seq
        from pgq.tick t
        where t.tick_queue = _queue_id
            and t.tick_id > prev_tick_id
        order by t.tick_id
        limit 1;
    else
        select f.next_tick_id, f.next_tick_time, f.next_tick_seq
        into cur_tick_id, cur_tick_time, cur_tick_event_seq
        from pgq.find_tick_helper(
            _queue_id, prev_tick_id, prev_tick_time, prev_tick_event_seq, i_min_count, i_min_interval) f;
    end if;

    if cur_tick_id is null or cur_tick_time > now() - i_min_lag then
        prev_tick_id := null;
        prev_tick_time := null;
        prev_tick_event_seq := null;
        cur_tick_id := null;
        cur_tick_time := null;
        cur_tick_event_seq := null;
        return;
    end if;

    batch_id := nextval('pgq.batch_id_seq');
    update pgq.subscription
    set sub_batch = batch_id,
        sub_next_tick = cur_tick_id,
        sub_active = now()
    where sub_queue = _queue_id
        and sub_consumer = _consumer_id;
end;
$$;
