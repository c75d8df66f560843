create or replace function londiste.version()
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Version of the londiste contract that this schema keeps.
--
-- Returns: text, never NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return '3.8';
end;
$$;
