create or replace function vedur.capture_home(i_relid oid, i_trigger_name name)
returns oid
language sql
stable
as $$
-- Find the table that a row trigger was made for: of a partition's clone, the partitioned table that has the original.
--
-- Parameters: i_relid - the table that the trigger fired for; i_trigger_name - its trigger.
-- Returns: the table; i_relid, if there is no such trigger above it.
-- Writes: nothing.
--
-- The ancestors are those of now, also where the catalog is read as it was at an older snapshot.
    select coalesce((
        select a.relid
        from pg_catalog.pg_partition_ancestors(i_relid) with ordinality as a (relid, nr)
            join pg_catalog.pg_trigger as t on t.tgrelid = a.relid
        where t.tgname operator(pg_catalog.=) i_trigger_name
            and t.tgparentid operator(pg_catalog.=) 0::pg_catalog.oid
        order by a.nr desc
        limit 1), i_relid)
$$;
