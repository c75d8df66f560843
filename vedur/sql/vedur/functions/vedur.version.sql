create or replace function vedur.version()
returns text
language sql
stable
as $$
    -- Purpose: the version of the program that last installed or upgraded schema vedur.
    -- Returns: version text; NULL while the first install is still running.
    -- Tables written: none. Errors: none.
    select version from vedur.component where schema = 'vedur';
$$;
