create or replace function londiste.find_column_types(tbl text)
returns text
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Say of each column whether it is part of the primary key.
--
-- Parameters: tbl - table name, not quoted.
-- Returns: one letter per column in order, k for key and v for value; empty for no table.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _types text;
begin
    select string_agg(
        case when a.attnum = any (k.conkey) then 'k' else 'v' end, '' order by a.attnum)
    into _types
    from pg_catalog.pg_attribute a
        left join pg_catalog.pg_constraint k
            on k.conrelid = a.attrelid and k.contype = 'p'
    where a.attrelid = londiste.find_table_oid(tbl)
        and a.attnum > 0
        and not a.attisdropped;
    return coalesce(_types, '');
end;
$$;
