create or replace function pgq_ext.is_event_done(a_consumer text, a_subconsumer text, a_batch_id bigint, a_event_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells whether an event of a batch is done.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
--     a_batch_id      batch
--     a_event_id      event in the batch
-- Returns: true if it is done
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return exists (
        select 1
        from pgq_ext.completed_event
        where consumer_id = a_consumer
            and subconsumer_id = a_subconsumer
            and batch_id = a_batch_id
            and event_id = a_event_id);
end;
$$;

create or replace function pgq_ext.is_event_done(a_consumer text, a_batch_id bigint, a_event_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells whether an event of a batch is done, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_batch_id      batch
--     a_event_id      event in the batch
-- Returns: true if it is done
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return pgq_ext.is_event_done(a_consumer, '', a_batch_id, a_event_id);
end;
$$;
