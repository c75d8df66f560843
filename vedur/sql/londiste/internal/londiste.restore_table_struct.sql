create or replace function londiste.restore_table_struct(i_queue_name text, i_table_name text)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- A table leaves the node in the middle of its copy: take care of the stored indexes.
--
-- Another part that is still being copied into the same table inherits them. Otherwise the
-- half of the rows that was copied goes, and indexes and constraints come back. Indexes that the
-- copy had brought back by itself before it was cut short are made again. Where another table of a
-- set brings rows to the same table, all rows stay: nothing here tells whose they are. (A part
-- that waits behind a combined queue brings none.)
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - name in the set.
-- Returns: nothing.
-- Writes: londiste.table_info, the table.
-- Raises: errors of the stored statements.
-- ----------------------------------------------------------------------
declare
    _row record;
    _heir record;
    _index text;
begin
    select t.dropped_ddl, coalesce(t.dest_table, t.table_name) as dest
    into _row
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = i_table_name
        and t.local;
    if not found or _row.dropped_ddl is null then
        return;
    end if;

    update londiste.table_info t
    set dropped_ddl = null
    where t.queue_name = i_queue_name
        and t.table_name = i_table_name;

    select t.queue_name, t.table_name
    into _heir
    from londiste.table_info t
    where t.local
        and t.merge_state in ('in-copy', 'catching-up')
        and t.dropped_ddl is null
        and coalesce(t.dest_table, t.table_name) = _row.dest
        and (t.queue_name, t.table_name) <> (i_queue_name, i_table_name)
    order by t.queue_name
    limit 1;
    if found then
        update londiste.table_info t
        set dropped_ddl = _row.dropped_ddl
        where t.queue_name = _heir.queue_name
            and t.table_name = _heir.table_name;
    elsif londiste.find_table_oid(_row.dest) is not null then
        if not exists (
            select 1
            from londiste.table_info t
                join pgq_node.node_info n on n.queue_name = t.queue_name
                left join pgq_node.node_info c on c.queue_name = n.combined_queue
            where t.local
                and n.node_type <> 'root'
                and c.node_type is distinct from 'branch'
                and coalesce(t.dest_table, t.table_name) = _row.dest
                and (t.queue_name, t.table_name) <> (i_queue_name, i_table_name)
        ) then
            execute 'truncate '
                || case when londiste.find_rel_oid(_row.dest, 'p') is null then 'only ' else '' end
                || londiste.quote_fqname(_row.dest);
        end if;
        for _index in
            select pg_catalog.format('%I.%I', p.part ->> 'schema', p.part ->> 'name')
            from pg_catalog.regexp_matches(
                    _row.dropped_ddl,
                    E'^--- vedur (\\{"kind": "index", "schema": ".*", "name": ".*", "chars": \\d+\\})$',
                    'gn') m,
                lateral (select m[1]::json as part) p
        loop
            if exists (
                select 1
                from pg_catalog.pg_index i
                where i.indexrelid = pg_catalog.to_regclass(_index)
                    and i.indrelid = londiste.find_table_oid(_row.dest)
                    and not exists (
                        select 1
                        from pg_catalog.pg_constraint c
                        where c.conindid = i.indexrelid
                            and c.contype in ('p', 'u', 'x'))
            ) then
                execute 'drop index ' || _index;
            end if;
        end loop;
        execute _row.dropped_ddl;
    end if;
end;
$$;
