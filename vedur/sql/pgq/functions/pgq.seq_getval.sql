create or replace function pgq.seq_getval(i_seq_name text)
returns bigint
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Reads the last value of a sequence without moving it.
--
-- Parameters:
--     i_seq_name  "schema.name", not quoted
-- Returns: last value (the start value if it was never used); null for null
-- Writes: nothing
-- Raises: undefined_table if there is no such sequence
-- ----------------------------------------------------------------------
declare
    _last bigint;
begin
    execute 'select last_value from ' || pgq.quote_fqname(i_seq_name) into _last;
    return _last;
end;
$$;
