create or replace function londiste.drop_obsolete_partitions(
    i_parent_table text,
    i_retention_period interval,
    i_partition_period text)
returns setof text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Drop partitions that are older than the time to keep.
--
-- Parameters: i_parent_table - parent; the rest as for londiste.is_obsolete_partition.
-- Returns: quoted names of the dropped partitions.
-- Writes: the partitions.
-- Raises: "not supported i_partition_period"; errors of DROP TABLE.
-- ----------------------------------------------------------------------
declare
    _part text;
begin
    for _part in
        select l.name
        from londiste.list_obsolete_partitions(
            i_parent_table, i_retention_period, i_partition_period) l (name)
    loop
        execute 'drop table ' || _part;
        return next _part;
    end loop;
end;
$$;
