create or replace function londiste.quote_fqname(i_name text)
returns text
language plpgsql
immutable
strict
as $$
-- ----------------------------------------------------------------------
-- Quote a name for use in SQL text, schema and name each on its own.
--
-- Parameters: i_name - name, not quoted.
-- Returns: schema.name, quoted where needed; NULL for NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _part record;
begin
    select * into _part
    from londiste.split_fqname(i_name);
    return quote_ident(_part.schema_part) || '.' || quote_ident(_part.name_part);
end;
$$;
