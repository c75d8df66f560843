create or replace function pgq_ext.version()
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tells which version of the contract this schema fulfils.
--
-- Parameters: none
-- Returns: version text
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return '3.4';
end;
$$;
