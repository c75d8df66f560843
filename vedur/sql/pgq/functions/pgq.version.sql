create or replace function pgq.version()
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tells which version of the queue contract this schema fulfils.
--
-- Parameters: none
-- Returns: version text; clients demand at least 3
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return '3.5.2';
end;
$$;
