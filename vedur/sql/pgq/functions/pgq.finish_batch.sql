create or replace function pgq.finish_batch(x_batch_id bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Closes a batch: the consumer moves to its upper tick.
--
-- Parameters:
--     x_batch_id      open batch
-- Returns: 1 closed, 0 with a warning if there is no such batch
-- Writes: pgq.subscription
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    update pgq.subscription
    set sub_last_tick = sub_next_tick,
        sub_next_tick = null,
        sub_batch = null,
        sub_active = now()
    where sub_batch = x_batch_id;
    if not found then
        raise warning 'finish_batch: batch % not found', x_batch_id;
        return 0;
    end if;
    return 1;
end;
$$;
