create or replace function londiste.periodic_maintenance()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Forget scripts that ran more than three months ago; bring generated capture up to the shape of its
-- tables, where there is any.
--
-- Returns: 0 always: there is nothing to repeat at once.
-- Writes: londiste.applied_execute; functions of schema vedur_work.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    delete from londiste.applied_execute e
    where e.execute_time < now() - interval '3 months';
    if to_regprocedure('vedur.refresh_stale_captures()') is not null then
        execute 'select vedur.refresh_stale_captures()';
    end if;
    return 0;
end;
$$;
