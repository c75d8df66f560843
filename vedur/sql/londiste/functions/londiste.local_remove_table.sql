create or replace function londiste.local_remove_table(
    in i_queue_name text,
    in i_table_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Take a table from this node; on the root from the whole set. Its rows stay.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table.
-- Returns: 200 done; 400 not in the set, or not on this node.
-- Writes: londiste.table_info, triggers, indexes of an unfinished copy; sequences that
--         belong to columns of the table leave too; on root events londiste.remove-table and
--         londiste.remove-seq.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
    _row record;
    _root boolean;
    _seq text;
begin
    select t.local, coalesce(t.dest_table, t.table_name) as dest
    into _row
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = _name
    for update;
    if not found then
        ret_code := 400;
        ret_note := 'Table not found: ' || _name;
        return;
    end if;
    _root := pgq_node.is_root_node(i_queue_name);
    if not _row.local and not _root then
        ret_code := 400;
        ret_note := 'Table not registered locally: ' || _name;
        return;
    end if;

    if _row.local then
        perform londiste.drop_table_triggers(i_queue_name, _name);
        perform londiste.restore_table_struct(i_queue_name, _name);

        for _seq in
            select s.seq_name
            from pg_catalog.pg_depend d
                join londiste.seq_info s on londiste.find_seq_oid(s.seq_name) = d.objid
            where d.classid = 'pg_catalog.pg_class'::regclass
                and d.refclassid = 'pg_catalog.pg_class'::regclass
                and d.refobjid = londiste.find_table_oid(_row.dest)
                and d.refobjsubid > 0
                and d.deptype in ('a', 'i')
                and s.queue_name = i_queue_name
                and s.local
            order by s.nr
        loop
            perform londiste.local_remove_seq(i_queue_name, _seq);
        end loop;
    end if;

    if _root then
        delete from londiste.table_info t
        where t.queue_name = i_queue_name
            and t.table_name = _name;
        perform londiste.root_notify_change(i_queue_name, 'londiste.remove-table', _name);
    else
        update londiste.table_info t
        set local = false,
            merge_state = null,
            custom_snapshot = null,
            dropped_ddl = null,
            table_attrs = null,
            dest_table = null
        where t.queue_name = i_queue_name
            and t.table_name = _name;
    end if;

    ret_code := 200;
    ret_note := 'Table removed: ' || _name;
end;
$$;
