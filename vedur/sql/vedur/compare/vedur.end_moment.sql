create or replace function vedur.end_moment(i_queue_name text)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Lets the tickers of a queue go on after vedur.begin_moment of the same session.
--
-- Parameters:
--     i_queue_name    queue
-- Returns: false if the lock was not held
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return (
        select pg_advisory_unlock(1885827444, queue_id)
        from pgq.queue
        where queue_name = i_queue_name);
end;
$$;
