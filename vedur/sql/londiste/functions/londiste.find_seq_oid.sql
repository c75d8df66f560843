create or replace function londiste.find_seq_oid(seq text)
returns oid
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Find a sequence.
--
-- Parameters: seq - name, not quoted.
-- Returns: oid, NULL when there is none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return londiste.find_rel_oid(seq, 'S');
end;
$$;
