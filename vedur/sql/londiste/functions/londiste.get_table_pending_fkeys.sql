create or replace function londiste.get_table_pending_fkeys(i_table_name text)
returns setof londiste.pending_fkeys
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- List foreign keys from and to a table that are dropped for now and stored.
--
-- Parameters: i_table_name - schema.table, not quoted.
-- Returns: rows of londiste.pending_fkeys, perhaps none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select p.*
        from londiste.pending_fkeys p
        where p.from_table = i_table_name
            or p.to_table = i_table_name;
end;
$$;
