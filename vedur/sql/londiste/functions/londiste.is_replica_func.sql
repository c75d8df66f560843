create or replace function londiste.is_replica_func(func_oid oid)
returns boolean
language sql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Tell whether a trigger function writes changes to a queue.
--
-- Parameters: func_oid - function.
-- Returns: true for the triggers of pgq and for generated capture; false otherwise, also
--          for no function; NULL for NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
    select count(*) > 0
    from pg_catalog.pg_proc f
        join pg_catalog.pg_namespace n on n.oid = f.pronamespace
    where f.oid = func_oid
        and f.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype
        and (n.nspname = 'pgq' and f.proname in ('sqltriga', 'logutriga', 'jsontriga', 'logtriga')
            or n.nspname in ('vedur', 'vedur_work'));
$$;
