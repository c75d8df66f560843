create or replace function londiste.find_table_oid(tbl text)
returns oid
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Find a table, plain or partitioned.
--
-- Parameters: tbl - name, not quoted.
-- Returns: oid, NULL when there is none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return londiste.find_rel_oid(tbl, 'r');
end;
$$;
