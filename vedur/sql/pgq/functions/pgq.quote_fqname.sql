create or replace function pgq.quote_fqname(i_name text)
returns text
language plpgsql
immutable
strict
as $$
-- ----------------------------------------------------------------------
-- Quotes a qualified name for use in SQL.
--
-- Parameters:
--     i_name      "schema.name" or "name"; the first dot divides, a name alone is in schema public
-- Returns: both parts quoted where needed; null for null
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _dot integer := pg_catalog.strpos(i_name, '.');
begin
    if _dot = 0 then
        return 'public.' || pg_catalog.quote_ident(i_name);
    end if;
    return pg_catalog.quote_ident(pg_catalog.substr(i_name, 1, _dot - 1))
        || '.' || pg_catalog.quote_ident(pg_catalog.substr(i_name, _dot + 1));
end;
$$;
