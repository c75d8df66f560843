create or replace function vedur.was_attached(i_relid oid)
returns boolean
language sql
stable
as $$
-- Tell whether a partition was a table before, so that it may have brought rows that no trigger has seen.
--
-- Parameters: i_relid - the partition.
-- Returns: true if it was attached, false if it was created as a partition.
-- Writes: nothing.
--
-- CREATE TABLE writes the catalog rows of all columns in one command, those of the system columns too. ATTACH
-- writes the rows of a table's own columns again, so that none of them is as old as those of the system columns.
    select not exists (
        select
        from pg_catalog.pg_attribute as s
            join pg_catalog.pg_attribute as a on a.attrelid = s.attrelid and a.attnum > 0
        where s.attrelid = i_relid
            and s.attname = 'tableoid'
            and s.attnum < 0
            and a.xmin = s.xmin
            and a.cmin = s.cmin)
$$;
