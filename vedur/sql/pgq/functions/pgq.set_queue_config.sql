create or replace function pgq.set_queue_config(x_queue_name text, x_param_name text, x_param_value text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Changes one setting of a queue.
--
-- Parameters:
--     x_queue_name    name of the queue
--     x_param_name    external_ticker, ticker_paused, ticker_max_count, ticker_max_lag, ticker_idle_period
--                     or rotation_period; the prefix "queue_" of the column is left out
--     x_param_value   new value, as text
-- Returns: 1
-- Writes: pgq.queue
-- Raises: Invalid NULL value; No such event queue; cannot change parameter "..."; the type's own error for a bad value
-- ----------------------------------------------------------------------
begin
    if x_queue_name is null or x_param_name is null or x_param_value is null then
        raise exception 'Invalid NULL value';
    end if;
    perform 1 from pgq.queue where queue_name = x_queue_name;
    if not found then
        raise exception 'No such event queue';
    end if;
    if x_param_name not in (
        'external_ticker', 'ticker_paused', 'ticker_max_count', 'ticker_max_lag', 'ticker_idle_period', 'rotation_period'
    ) then
        raise exception 'cannot change parameter "%"', x_param_name;
    end if;
    execute format('update pgq.queue set %I = %L where queue_name = $1', 'queue_' || x_param_name, x_param_value)
    using x_queue_name;
    return 1;
end;
$$;
