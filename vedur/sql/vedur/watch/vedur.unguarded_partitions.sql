create or replace function vedur.unguarded_partitions(i_queue_name text, i_relid oid)
returns text[]
language sql
stable
as $$
-- Name the partitions of a replicated table that lack the truncate trigger of a queue.
--
-- Parameters: i_queue_name; i_relid - the replicated table.
-- Returns: their names; none for a table without triggers of the queue.
-- Writes: nothing.
    select coalesce(pg_catalog.array_agg(l.relid::pg_catalog.regclass::text order by l.relid), '{}')
    from vedur.leaf_partitions(i_relid) as l
    where vedur.has_capture(i_queue_name, i_relid)
        and not exists (
            select
            from pg_catalog.pg_trigger as t
            where t.tgrelid = l.relid
                and t.tgtype & 32 > 0
                and t.tgname = ('_londiste_' || i_queue_name || '_truncate')::name)
$$;
