create or replace function londiste.find_seq_oid(seq text)
returns oid
language plpgsql
stable
strict
as $$
begin
    -- Find a sequence.
    --
    -- Parameters: seq - name, not quoted.
    -- Returns: oid, NULL when there is none.
    -- Writes: nothing.
    -- Raises: nothing.

    return londiste.find_rel_oid(seq, 'S');
end;
$$;
