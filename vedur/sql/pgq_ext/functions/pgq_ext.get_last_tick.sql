create or replace function pgq_ext.get_last_tick(a_consumer text, a_subconsumer text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells the last tick a consumer has done.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
-- Returns: tick id; null if none is known
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return (
        select last_tick_id
        from pgq_ext.completed_tick
        where consumer_id = a_consumer
            and subconsumer_id = a_subconsumer);
end;
$$;

create or replace function pgq_ext.get_last_tick(a_consumer text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tells the last tick a consumer has done, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
-- Returns: tick id; null if none is known
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return pgq_ext.get_last_tick(a_consumer, '');
end;
$$;
