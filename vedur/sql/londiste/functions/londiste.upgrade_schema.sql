create or replace function londiste.upgrade_schema()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Bring tables of an older londiste up to this version.
--
-- Returns: number of changes made; 0 here, because the installer runs versioned upgrade
--          steps itself and this name stays for tools that call it.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return 0;
end;
$$;
