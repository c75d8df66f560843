create or replace function pgq_ext.set_batch_done(a_consumer text, a_subconsumer text, a_batch_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Marks a batch as done.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
--     a_batch_id      batch
-- Returns: true; false if it was done before
-- Writes: pgq_ext.completed_batch
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
begin
    -- One statement, so that of two workers with the same batch only one is told true.
    insert into pgq_ext.completed_batch (consumer_id, subconsumer_id, last_batch_id)
    values (a_consumer, a_subconsumer, a_batch_id)
    on conflict (consumer_id, subconsumer_id) do update
    set last_batch_id = excluded.last_batch_id
    where pgq_ext.completed_batch.last_batch_id <> excluded.last_batch_id;
    return found;
end;
$$;

create or replace function pgq_ext.set_batch_done(a_consumer text, a_batch_id bigint)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Marks a batch as done, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_batch_id      batch
-- Returns: true; false if it was done before
-- Writes: pgq_ext.completed_batch
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
begin
    return pgq_ext.set_batch_done(a_consumer, '', a_batch_id);
end;
$$;
