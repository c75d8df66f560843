create or replace function pgq.unregister_consumer(x_queue_name text, x_consumer_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Ends a subscription; its waiting retries are dropped. Cooperating consumers ("name.part", with the same
-- subscription) go with their main consumer.
--
-- Parameters:
--     x_queue_name    name of the queue
--     x_consumer_name name of the consumer
-- Returns: number of subscriptions ended; 0 if there was none
-- Writes: pgq.subscription, pgq.retry_queue, pgq.consumer
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _sub pgq.subscription%rowtype;
    _is_part boolean;
    _gone integer[];
begin
    select s.* into _sub
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    join pgq.consumer c on c.co_id = s.sub_consumer
    where q.queue_name = x_queue_name
        and c.co_name = x_consumer_name
    for update of s;
    if not found then
        return 0;
    end if;

    _is_part := exists (
        select 1
        from pgq.subscription s
        join pgq.consumer c on c.co_id = s.sub_consumer
        where s.sub_queue = _sub.sub_queue
            and s.sub_id = _sub.sub_id
            and starts_with(x_consumer_name, c.co_name || '.'));

    with gone as (
        delete from pgq.subscription
        where sub_queue = _sub.sub_queue
            and sub_id = _sub.sub_id
            and (sub_consumer = _sub.sub_consumer or not _is_part)
        returning sub_consumer
    )
    select array_agg(sub_consumer) into _gone from gone;

    if not _is_part then
        delete from pgq.retry_queue where ev_queue = _sub.sub_queue and ev_owner = _sub.sub_id;
    end if;

    -- A name that someone is registering right now, or still uses elsewhere, stays.
    begin
        delete from pgq.consumer c
        where c.co_id in (
                select l.co_id
                from pgq.consumer l
                where l.co_id = any (_gone)
                for update skip locked)
            and not exists (select 1 from pgq.subscription s where s.sub_consumer = c.co_id);
    exception
        when foreign_key_violation then
            null;
    end;
    return cardinality(_gone);
end;
$$;
