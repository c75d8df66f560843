create or replace function vedur.find_partition(
    i_parent text,
    i_field text,
    i_moment timestamp)
returns text
language plpgsql
stable
as $$
-- ----------------------------------------------------------------------
-- Find the partition of a table that takes rows of a moment, whatever its name is.
--
-- Parameters:
--     i_parent    a table that is declared partitioned, not quoted
--     i_field     the column that it is partitioned by
--     i_moment    the moment, as a clock on the wall of the session's time zone shows it
-- Returns: the partition's name with its schema, not quoted; NULL where there is none but perhaps a default one, and
--          for a table that is partitioned in another way than by a range of that column
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _part record;
    _fits boolean;
begin
    for _part in
        select n.nspname || '.' || c.relname as name, pg_get_partition_constraintdef(c.oid) as rule,
            format_type(a.atttypid, null) as type
        from pg_catalog.pg_partitioned_table p
            join pg_catalog.pg_attribute a on a.attrelid = p.partrelid and a.attname = i_field
            join pg_catalog.pg_inherits i on i.inhparent = p.partrelid
            join pg_catalog.pg_class c on c.oid = i.inhrelid
            join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where p.partrelid = londiste.find_table_oid(i_parent)
            and p.partstrat = 'r' and p.partattrs::text = a.attnum::text
            and c.oid <> p.partdefid
    loop
        execute format('select %s from (select %L::timestamp::%s as %I) as t', _part.rule, i_moment, _part.type, i_field)
        into _fits;
        if _fits then
            return _part.name;
        end if;
    end loop;
    return null;
end;
$$;
