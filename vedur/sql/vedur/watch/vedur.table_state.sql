create or replace function vedur.table_state(i_queue_name text, i_relid oid)
returns jsonb
language sql
stable
as $$
-- Describe what vedur.watch_tables compares between two looks.
--
-- Parameters: i_queue_name - whose triggers count; i_relid - the table.
-- Returns: name (as in the set: schema.table), columns (number: [name, type]), partitions
--     (oid: [name, file node, transactions that attached it and the partitions above it]), file (file node of a table that is not partitioned), written (number of a column:
--     transaction), triggers (oid: [table or partition, name, enabled, transaction]), made (transaction); NULL if
--     there is no such table.
-- Writes: nothing.
--
-- A transaction is the one that wrote the row in the catalog. ALTER COLUMN and ENABLE or DISABLE TRIGGER write it
-- again; VACUUM FULL, CLUSTER, TRUNCATE, ANALYZE and freezing do not. The row of a system column is written once, when
-- the table is made, so "made" is another one after pg_upgrade, which writes the whole catalog again.
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
                p.oid, pg_catalog.jsonb_build_array(pn.nspname || '.' || p.relname, p.relfilenode, e.attached)), '{}')
            from vedur.leaf_partitions(c.oid) as l
                join pg_catalog.pg_class as p on p.oid = l.relid
                join pg_catalog.pg_namespace as pn on pn.oid = p.relnamespace
                cross join lateral (
                    select pg_catalog.string_agg(i.xmin::text, ' ' order by i.inhrelid) as attached
                    from pg_catalog.pg_partition_ancestors(p.oid) as a
                        join pg_catalog.pg_inherits as i on i.inhrelid = a.relid
                    where a.relid::oid not in (
                        select above.relid::oid from pg_catalog.pg_partition_ancestors(c.oid) as above)) as e) end,
        'file', case when c.relkind <> 'p' then c.relfilenode end,
        'written', (
            select pg_catalog.jsonb_object_agg(a.attnum, a.xmin::text)
            from pg_catalog.pg_attribute as a
            where a.attrelid = c.oid
                and a.attnum > 0
                and not a.attisdropped),
        'triggers', (
            select coalesce(pg_catalog.jsonb_object_agg(
                t.oid, pg_catalog.jsonb_build_array(t.tgrelid, t.tgname, t.tgenabled, t.xmin::text)), '{}')
            from (select c.oid union all select l.relid from vedur.leaf_partitions(c.oid) as l) as r (relid)
                -- by the index, and not through all triggers of the database
                cross join lateral (
                    select g.oid, g.tgrelid, g.tgname, g.tgenabled, g.xmin
                    from pg_catalog.pg_trigger as g
                    where g.tgrelid = r.relid
                    offset 0) as t
            where t.tgname = any (vedur.capture_trigger_names(i_queue_name))),
        'made', (
            select a.xmin::text
            from pg_catalog.pg_attribute as a
            where a.attrelid = c.oid
                and a.attname = 'tableoid'
                and a.attnum < 0))
    from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.oid = i_relid
$$;
