create or replace function vedur.leaf_partitions(i_relid oid)
returns table (relid oid)
language sql
stable
as $$
-- List the partitions of a table that hold rows, of all levels.
--
-- Parameters: i_relid - the table.
-- Returns: their oids; none for a table that is not partitioned. A partition that is being detached concurrently
--     is none any more: its rows are not seen through the table.
-- Writes: nothing, and waits for no lock, unlike pg_partition_tree.
    with recursive parts as (
        select c.oid, c.relkind
        from pg_catalog.pg_class as c
        where c.oid = i_relid
            and c.relkind = 'p'
        union all
        select c.oid, c.relkind
        from parts as p
            join pg_catalog.pg_inherits as i on i.inhparent = p.oid and not i.inhdetachpending
            join pg_catalog.pg_class as c on c.oid = i.inhrelid
        where p.relkind = 'p'
    )
    select p.oid from parts as p where p.relkind <> 'p'
$$;
