create or replace function vedur.came_with_rows(i_relid oid, i_table oid)
returns boolean
language sql
stable
as $$
-- Tell whether a partition may have had rows when it came, by itself or with the partition above it that was attached.
--
-- Parameters: i_relid - the partition; i_table - the table that it is a part of now.
-- Returns: true if it was a table before, or if one of the partitions above it was one, and it was there by then.
-- Writes: nothing.
--
-- A partition that was made below another one after that was attached is younger than the attachment: triggers of the
-- table have seen all of its rows.
    select vedur.was_attached(i_relid) or exists (
        select
        from pg_catalog.pg_partition_ancestors(i_relid) as a
            join pg_catalog.pg_inherits as i on i.inhrelid = a.relid
            join pg_catalog.pg_attribute as made
                on made.attrelid = i_relid
                and made.attname = 'tableoid'
                and made.attnum < 0
        where a.relid::oid <> i_relid
            and a.relid::oid not in (select above.relid::oid from pg_catalog.pg_partition_ancestors(i_table) as above)
            and vedur.was_attached(a.relid::oid)
            and pg_catalog.age(made.xmin) >= pg_catalog.age(i.xmin))
$$;
