create or replace function pgq.register_consumer_at(x_queue_name text, x_consumer_name text, x_tick_pos bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Subscribes a consumer at a given tick, or moves it there. Its next batch begins after that tick.
--
-- Parameters:
--     x_queue_name    name of the queue
--     x_consumer_name name of the consumer
--     x_tick_pos      tick that is already done; null: the last one for a new consumer, no move for an old one
-- Returns: 1 new, 0 subscribed before; if it was moved, its open batch is dropped
-- Writes: pgq.consumer, pgq.subscription
-- Raises: Event queue not created yet; cannot reposition, tick not found: N;
--     No ticks for this queue.  Please run ticker on database.
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _consumer_id integer;
    _tick_id bigint := x_tick_pos;
begin
    -- The row lock keeps rotation from deleting the tick, and its events, before the position is stored.
    select queue_id into _queue_id
    from pgq.queue
    where queue_name = x_queue_name
    for share;
    if not found then
        raise exception 'Event queue not created yet';
    end if;

    if x_tick_pos is not null then
        perform 1 from pgq.tick where tick_queue = _queue_id and tick_id = x_tick_pos;
        if not found then
            raise exception 'cannot reposition, tick not found: %', x_tick_pos;
        end if;
    end if;

    insert into pgq.consumer (co_name)
    select x_consumer_name
    where not exists (select 1 from pgq.consumer where co_name = x_consumer_name)
    on conflict (co_name) do nothing;

    -- The key share lock keeps a concurrent unregister from removing the name under us.
    select co_id into _consumer_id
    from pgq.consumer
    where co_name = x_consumer_name
    for key share;

    update pgq.subscription
    set sub_last_tick = coalesce(x_tick_pos, sub_last_tick),
        sub_next_tick = case when x_tick_pos is null then sub_next_tick end,
        sub_batch = case when x_tick_pos is null then sub_batch end,
        sub_active = case when x_tick_pos is null then sub_active else now() end
    where sub_queue = _queue_id
        and sub_consumer = _consumer_id;
    if found then
        return 0;
    end if;

    if _tick_id is null then
        select max(tick_id) into _tick_id from pgq.tick where tick_queue = _queue_id;
        if _tick_id is null then
            raise exception 'No ticks for this queue.  Please run ticker on database.';
        end if;
    end if;

    insert into pgq.subscription (sub_queue, sub_consumer, sub_last_tick)
    values (_queue_id, _consumer_id, _tick_id)
    on conflict (sub_queue, sub_consumer) do nothing;
    return case when found then 1 else 0 end;
end;
$$;
