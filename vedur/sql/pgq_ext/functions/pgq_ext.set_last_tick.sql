create or replace function pgq_ext.set_last_tick(a_consumer text, a_subconsumer text, a_tick_id bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Stores the last tick a consumer has done.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_subconsumer   part of it, for consumers that share work; '' otherwise
--     a_tick_id       tick that is done; null: forget the position
-- Returns: 1
-- Writes: pgq_ext.completed_tick
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
begin
    if a_tick_id is null then
        delete from pgq_ext.completed_tick
        where consumer_id = a_consumer
            and subconsumer_id = a_subconsumer;
    else
        insert into pgq_ext.completed_tick (consumer_id, subconsumer_id, last_tick_id)
        values (a_consumer, a_subconsumer, a_tick_id)
        on conflict (consumer_id, subconsumer_id) do update
        set last_tick_id = excluded.last_tick_id;
    end if;
    return 1;
end;
$$;

create or replace function pgq_ext.set_last_tick(a_consumer text, a_tick_id bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Stores the last tick a consumer has done, without subconsumer.
--
-- Parameters:
--     a_consumer      name of the consumer
--     a_tick_id       tick that is done; null: forget the position
-- Returns: 1
-- Writes: pgq_ext.completed_tick
-- Raises: not_null_violation
-- ----------------------------------------------------------------------
begin
    return pgq_ext.set_last_tick(a_consumer, '', a_tick_id);
end;
$$;
