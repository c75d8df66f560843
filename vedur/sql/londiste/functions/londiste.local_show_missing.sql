create or replace function londiste.local_show_missing(
    in i_queue_name text,
    out obj_kind text,
    out obj_name text)
returns setof record
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- On the root: tables and sequences of the database that are not in the set. Elsewhere: what
-- the set has and this node does not.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: kind (S sequence, r table, partitioned ones too) and name; partitions belong to
--          their table and are not listed.
-- Writes: nothing.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
begin
    if pgq_node.is_root_node(i_queue_name) then
        return query
            select r.kind, r.name
            from (
                select case c.relkind when 'S' then 'S' else 'r' end as kind,
                    n.nspname || '.' || c.relname as name
                from pg_catalog.pg_class c
                    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where c.relkind in ('r', 'p', 'S')
                    and c.relpersistence = 'p'
                    and not c.relispartition
                    and n.nspname not in (
                        'pgq', 'pgq_ext', 'pgq_node', 'pgq_coop', 'londiste', 'vedur',
                        'vedur_work', 'information_schema')
                    and n.nspname not like E'pg\\_%'
            ) r
            where not exists (
                    select 1
                    from londiste.table_info t
                    where r.kind = 'r'
                        and t.queue_name = i_queue_name
                        and coalesce(t.dest_table, t.table_name) = r.name)
                and not exists (
                    select 1
                    from londiste.seq_info s
                    where r.kind = 'S'
                        and s.queue_name = i_queue_name
                        and s.seq_name = r.name)
            order by r.kind collate "C", r.name collate "C";
    else
        return query
            select m.kind, m.name
            from (
                select 'S'::text as kind, s.seq_name as name
                from londiste.seq_info s
                where s.queue_name = i_queue_name
                    and not s.local
                union all
                select 'r', t.table_name
                from londiste.table_info t
                where t.queue_name = i_queue_name
                    and not t.local
            ) m
            order by m.kind collate "C", m.name collate "C";
    end if;
end;
$$;
