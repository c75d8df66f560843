create or replace function pgq_ext.is_batch_done(a_consumer text, a_subconsumer text, a_batch_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells whether a batch is the last one that was done.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
--     a_batch_id      batch
-- Returns: true if it is done
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return exists (
        select 1
        from pgq_ext.completed_batch
        where consumer_id = a_consumer
            and subconsumer_id = a_subconsumer
            and last_batch_id = a_batch_id);
end;
$$;

create or replace function pgq_ext.is_batch_done(a_consumer text, a_batch_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells whether a batch is the last one that was done, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_batch_id      batch
-- Returns: true if it is done
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return pgq_ext.is_batch_done(a_consumer, '', a_batch_id);
end;
$$;
