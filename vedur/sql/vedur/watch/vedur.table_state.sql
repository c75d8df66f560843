create or replace function vedur.table_state(i_relid oid)
returns jsonb
language sql
stable
as $$
-- Describe what vedur.watch_tables compares between two looks.
--
-- Parameters: i_relid - the table.
-- Returns: name (as in the set: schema.table), columns (number: [name, type]), partitions
--     (oid: [name, file node]); NULL if there is no such table.
-- Writes: nothing.
    select pg_catalog.jsonb_build_object(
        'name', n.nspname || '.' || c.relname,
        'columns', (
            select pg_catalog.jsonb_object_agg(
                a.attnum, pg_catalog.jsonb_build_array(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)))
            from pg_catalog.pg_attribute as a
            where a.attrelid = c.oid
                and a.attnum > 0
                and not a.attisdropped),
        'partitions', case when c.relkind = 'p' then (
            select coalesce(pg_catalog.jsonb_object_agg(
                p.oid, pg_catalog.jsonb_build_array(pn.nspname || '.' || p.relname, p.relfilenode)), '{}')
            from vedur.leaf_partitions(c.oid) as l
                join pg_catalog.pg_class as p on p.oid = l.relid
                join pg_catalog.pg_namespace as pn on pn.oid = p.relnamespace) end)
    from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.oid = i_relid
$$;
