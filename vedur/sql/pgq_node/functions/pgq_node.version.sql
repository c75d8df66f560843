create or replace function pgq_node.version()
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Version of the pgq_node contract that this schema keeps.
--
-- Returns: text, never NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return '3.5';
end;
$$;
