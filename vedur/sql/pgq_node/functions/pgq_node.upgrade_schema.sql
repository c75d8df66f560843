create or replace function pgq_node.upgrade_schema()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Bring tables of an older pgq_node up to this version.
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
