create or replace function pgq.seq_setval(i_seq_name text, i_new_value bigint)
returns bigint
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Moves a sequence forward; never back.
--
-- Parameters:
--     i_seq_name  "schema.name", not quoted
--     i_new_value value it must have reached
-- Returns: last value after the call; null if an argument is null
-- Writes: the sequence
-- Raises: undefined_table if there is no such sequence
-- ----------------------------------------------------------------------
declare
    _last bigint := pgq.seq_getval(i_seq_name);
begin
    if _last >= i_new_value then
        return _last;
    end if;
    return pg_catalog.setval(pgq.quote_fqname(i_seq_name)::regclass, i_new_value);
end;
$$;
