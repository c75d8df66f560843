create or replace function pgq.drop_queue(x_queue_name text, x_force boolean)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Removes a queue with its events, ticks and tables.
--
-- Parameters:
--     x_queue_name    name of the queue
--     x_force         true: unregister its consumers first
-- Returns: 1
-- Writes: pgq.queue, pgq.tick, pgq.retry_queue, pgq.subscription, pgq.consumer; drops the event tables and sequences
-- Raises: No such event queue; cannot drop queue, consumers still attached
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _consumer text;
begin
    select * into _queue
    from pgq.queue
    where queue_name = x_queue_name
    for update;
    if not found then
        raise exception 'No such event queue';
    end if;

    for _consumer in
        select c.co_name
        from pgq.subscription s
        join pgq.consumer c on c.co_id = s.sub_consumer
        where s.sub_queue = _queue.queue_id
    loop
        if x_force is not true then
            raise exception 'cannot drop queue, consumers still attached';
        end if;
        perform pgq.unregister_consumer(x_queue_name, _consumer);
    end loop;

    for _nr in 0 .. _queue.queue_ntables - 1 loop
        execute format('drop table %s', pgq.quote_fqname(_queue.queue_data_pfx || '_' || _nr));
    end loop;
    execute format('drop table %s', pgq.quote_fqname(_queue.queue_data_pfx));
    execute format('drop sequence %s', pgq.quote_fqname(_queue.queue_tick_seq));
    execute format('drop sequence %s', pgq.quote_fqname(_queue.queue_event_seq));

    delete from pgq.retry_queue where ev_queue = _queue.queue_id;
    delete from pgq.tick where tick_queue = _queue.queue_id;
    delete from pgq.queue where queue_id = _queue.queue_id;
    return 1;
end;
$$;

create or replace function pgq.drop_queue(x_queue_name text)
returns integer
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Removes a queue that has no consumers.
--
-- Parameters:
--     x_queue_name    name of the queue
-- Returns: 1; null for null
-- Writes: as pgq.drop_queue(2)
-- Raises: No such event queue; cannot drop queue, consumers still attached
-- ----------------------------------------------------------------------
begin
    return pgq.drop_queue(x_queue_name, false);
end;
$$;
