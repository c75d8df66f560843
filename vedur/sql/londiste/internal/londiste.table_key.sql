create or replace function londiste.table_key(tbl text)
returns text[]
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Name the columns by which changes of a table find their rows.
--
-- The primary key. Without one the index of the replica identity, else the smallest unique index,
-- if it is valid, total, not deferrable, and over NOT NULL columns that are not generated. Names
-- that pkey= of a trigger cannot hold (a comma, a space at either end) do not count. The choice is written once more in
-- vedur/sql/queries/catalog.sql (table_keys), for databases that do not have this function; a test holds them together.
--
-- Parameters: tbl - table name, not quoted.
-- Returns: column names in the order of the index; empty for no key, and for no table.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _key text[];
begin
    select array(
        select a.attname::text
        from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
            join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where k.nr <= i.indnkeyatts
        order by k.nr)
    into _key
    from pg_catalog.pg_index i
        join pg_catalog.pg_class x on x.oid = i.indexrelid
    where i.indrelid = londiste.find_table_oid(tbl)
        and i.indisunique
        and (i.indisprimary
            or i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
                and not exists (
                    select 1
                    from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
                        join pg_catalog.pg_attribute a
                            on a.attrelid = i.indrelid and a.attnum = k.attnum
                    where k.nr <= i.indnkeyatts
                        and (k.attnum < 1 or not a.attnotnull or a.attgenerated <> ''
                            or a.attname ~ E'^\\s|,|\\s$')))
    order by i.indisprimary desc, i.indisreplident desc, i.indnkeyatts, x.relname
    limit 1;
    return coalesce(_key, '{}');
end;
$$;
