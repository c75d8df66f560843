create or replace function londiste.periodic_maintenance()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Forget scripts that ran more than three months ago.
--
-- Returns: 0 always: there is nothing to repeat at once.
-- Writes: londiste.applied_execute.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    delete from londiste.applied_execute e
    where e.execute_time < now() - interval '3 months';
    return 0;
end;
$$;
