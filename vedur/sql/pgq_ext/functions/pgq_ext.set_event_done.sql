create or replace function pgq_ext.set_event_done(a_consumer text, a_subconsumer text, a_batch_id bigint, a_event_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Marks an event of a batch as done; the first event of another batch forgets those of the previous one.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
--     a_batch_id      batch
--     a_event_id      event in the batch
-- Returns: true; false if it was done before
-- Writes: pgq_ext.completed_event, pgq_ext.partial_batch
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
declare
    _old_batch bigint;
begin
    select cur_batch_id into _old_batch
    from pgq_ext.partial_batch
    where consumer_id = a_consumer
        and subconsumer_id = a_subconsumer
    for update;
    if _old_batch is distinct from a_batch_id then
        delete from pgq_ext.completed_event
        where consumer_id = a_consumer
            and subconsumer_id = a_subconsumer
            and batch_id = _old_batch;
        insert into pgq_ext.partial_batch (consumer_id, subconsumer_id, cur_batch_id)
        values (a_consumer, a_subconsumer, a_batch_id)
        on conflict (consumer_id, subconsumer_id) do update
        set cur_batch_id = excluded.cur_batch_id;
    end if;

    insert into pgq_ext.completed_event (consumer_id, subconsumer_id, batch_id, event_id)
    values (a_consumer, a_subconsumer, a_batch_id, a_event_id)
    on conflict (consumer_id, subconsumer_id, batch_id, event_id) do nothing;
    return found;
end;
$$;

create or replace function pgq_ext.set_event_done(a_consumer text, a_batch_id bigint, a_event_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Marks an event of a batch as done; the first event of another batch forgets those of the previous one, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_batch_id      batch
--     a_event_id      event in the batch
-- Returns: true; false if it was done before
-- Writes: pgq_ext.completed_event, pgq_ext.partial_batch
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
begin
    return pgq_ext.set_event_done(a_consumer, '', a_batch_id, a_event_id);
end;
$$;
