create or replace function londiste.list_obsolete_partitions(
    i_parent_table text,
    i_retention_period interval,
    i_partition_period text)
returns setof text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- List partitions that are older than the time to keep.
--
-- Parameters: i_parent_table - parent; the rest as for londiste.is_obsolete_partition.
-- Returns: quoted names, in order; none for no parent.
-- Writes: nothing.
-- Raises: "not supported i_partition_period".
-- ----------------------------------------------------------------------
declare
    _parent text := londiste.make_fqname(i_parent_table);
begin
    perform londiste.is_obsolete_partition('', i_retention_period, i_partition_period);
    return query
        select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
        from pg_catalog.pg_inherits i
            join pg_catalog.pg_class c on c.oid = i.inhrelid
            join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where i.inhparent = londiste.find_table_oid(_parent)
            -- The name must be the parent's with a time stamp, nothing in between.
            and c.relname ~ '_[0-9_]+$'
            and regexp_replace(c.relname, '(_[0-9]{4})(_[0-9]{2})*$', '')
                = (londiste.split_fqname(_parent)).name_part
            and londiste.is_obsolete_partition(
                c.relname, i_retention_period, i_partition_period)
        order by 1;
end;
$$;
