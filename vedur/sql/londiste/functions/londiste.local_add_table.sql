create or replace function londiste.local_add_table(
    in i_queue_name text,
    in i_table_name text,
    in i_trg_args text[],
    in i_table_attrs text,
    in i_dest_table text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Take a table of the set to this node.
--
-- Root: the table joins the set, and all nodes are told. Elsewhere it will be copied, unless
-- expect_sync says that it is equal already. On a leaf, queues that are merged into the same
-- place may bring the same table: merge_all takes all of them, no_merge this one only.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table; i_trg_args - words for the
--             registry (expect_sync, skip_truncate, no_triggers, merge_all, no_merge, skip,
--             virtual_table, tgflags=) and for the trigger; i_table_attrs - urlenc settings to
--             store; i_dest_table - name on this node, NULL when it is the same.
-- Returns: 200 added, or added before; 301 added, but its trigger does not fire first;
--          400 no such set, no key (see londiste.table_key); 403, 405 trigger or merge conflict; 404 no such
--          table, here or in the set; 410 added before with other settings. Nothing is
--          changed by 4xx.
-- Writes: londiste.table_info, also for merged and combined queues; triggers; on root
--         event londiste.add-table.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
    _dest text := londiste.make_fqname(coalesce(i_dest_table, i_table_name));
    _title text := _name || case when _dest <> _name then '(' || _dest || ')' else '' end;
    _args text[] := coalesce(i_trg_args, '{}');
    _attrs text := i_table_attrs;
    -- a virtual table has no rows here that could be copied
    _in_sync boolean := _args && array['expect_sync', 'virtual_table'];
    _state text;
    _node record;
    _old record;
    _found boolean;
    _other text;
    _trg record;
begin
    select n.node_type, n.combined_queue
    into _node
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
    for no key update;  -- one at a time; foreign keys to the node do not wait for it
    if not found then
        ret_code := 400;
        ret_note := 'No such set: ' || i_queue_name;
        return;
    end if;

    if not 'virtual_table' = any (_args) then
        if londiste.find_table_oid(_dest) is null then
            ret_code := 404;
            ret_note := 'Table does not exist: ' || _title;
            return;
        end if;
        if cardinality(londiste.table_key(_dest)) = 0 then
            ret_code := 400;
            ret_note := 'Primary key missing on table: ' || _title;
            return;
        end if;
    end if;

    if 'skip_truncate' = any (_args) then
        _attrs := concat_ws('&', _attrs, 'skip_truncate=1');
    end if;

    select t.local, t.table_attrs, coalesce(t.dest_table, t.table_name) as dest
    into _old
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = _name
    for update;
    _found := found;
    if not _found and _node.node_type <> 'root' then
        ret_code := 404;
        ret_note := 'Table not available on queue: ' || _title;
        return;
    end if;
    if _found and _old.local then
        if _old.table_attrs is distinct from _attrs or _old.dest <> _dest then
            ret_code := 410;
            ret_note := 'Table ' || _title || ' already added, but with different args: '
                || concat_ws(', ', _old.table_attrs,
                    case when _old.dest <> _dest then 'table ' || _old.dest end);
            return;
        end if;
        ret_code := 200;
        ret_note := 'Table already added: ' || _title;
        return;
    end if;

    if _node.node_type = 'leaf' and not _in_sync and not 'no_merge' = any (_args) then
        if not 'merge_all' = any (_args) and exists (
            select 1
            from londiste.table_info t
                join pgq_node.node_info n on n.queue_name = t.queue_name
            where t.table_name = _name
                and t.queue_name <> i_queue_name
                and n.node_type = 'leaf'
                and n.combined_queue is not distinct from _node.combined_queue
        ) then
            ret_code := 405;
            ret_note := 'Found multiple sources for table ' || _title
                || ', use merge-all or no-merge to continue';
            return;
        end if;

        select t.queue_name
        into _other
        from londiste.table_info t
        where t.local
            and t.queue_name <> i_queue_name
            and t.queue_name is distinct from _node.combined_queue
            and coalesce(t.dest_table, t.table_name) = _dest
        order by t.queue_name
        limit 1;
        if found then
            ret_code := 405;
            ret_note := 'Found local table ' || _title || ' in queue ' || _other
                || ', use remove-table first to remove all previous table subscriptions';
            return;
        end if;
    end if;

    if _node.combined_queue is not null then
        select r.ret_code, r.ret_note
        into ret_code, ret_note
        from londiste.local_add_table_combined(
            _node.combined_queue, _name, _args, _attrs, _dest) r;
        if ret_code >= 400 then
            return;
        end if;
    end if;

    select * into _trg
    from londiste.create_trigger(i_queue_name, _name, _args, _dest, _node.node_type);
    if _trg.ret_code >= 400 then
        ret_code := _trg.ret_code;
        ret_note := 'Trigger creation failed for table ' || _title || ': ' || _trg.ret_note;
        return;
    end if;

    if _node.node_type = 'root' or _in_sync then
        _state := 'ok';
    end if;
    if not _found then
        insert into londiste.table_info (queue_name, table_name)
        values (i_queue_name, _name);
    end if;
    update londiste.table_info t
    set local = true,
        merge_state = _state,
        custom_snapshot = null,
        table_attrs = _attrs,
        dest_table = nullif(_dest, _name)
    from pgq_node.node_info n
    where n.queue_name = t.queue_name
        and t.table_name = _name
        and (t.queue_name = i_queue_name
            or _node.node_type = 'leaf'
                and (_in_sync or 'merge_all' = any (_args))
                and not 'no_merge' = any (_args)
                and n.node_type = 'leaf'
                and n.combined_queue is not distinct from _node.combined_queue
                and not t.local);

    if to_regprocedure('vedur.watch_table(text,text,oid)') is not null then
        execute 'select vedur.watch_table($1, $2, $3)'
        using i_queue_name, _name, londiste.find_table_oid(_dest);
    end if;
    if _node.node_type = 'root' then
        perform londiste.root_notify_change(i_queue_name, 'londiste.add-table', _name);
    end if;

    ret_code := case when _trg.ret_code = 301 then 301 else 200 end;
    ret_note := case when _trg.ret_code = 201 then 'Table added with no triggers: ' else 'Table added: ' end
        || _title || case when _trg.ret_code = 301 then ', but ' || _trg.ret_note else '' end;
end;
$$;

create or replace function londiste.local_add_table(
    in i_queue_name text,
    in i_table_name text,
    in i_trg_args text[],
    in i_table_attrs text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Take a table to this node under its own name.
--
-- Parameters, returns, writes, raises: as with i_dest_table.
-- ----------------------------------------------------------------------
begin
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.local_add_table(i_queue_name, i_table_name, i_trg_args, i_table_attrs, null) r;
end;
$$;

create or replace function londiste.local_add_table(
    in i_queue_name text,
    in i_table_name text,
    in i_trg_args text[],
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Take a table to this node under its own name, without settings.
--
-- Parameters, returns, writes, raises: as with i_dest_table.
-- ----------------------------------------------------------------------
begin
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.local_add_table(i_queue_name, i_table_name, i_trg_args, null, null) r;
end;
$$;

create or replace function londiste.local_add_table(
    in i_queue_name text,
    in i_table_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Take a table to this node with all defaults.
--
-- Parameters, returns, writes, raises: as with i_dest_table.
-- ----------------------------------------------------------------------
begin
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.local_add_table(i_queue_name, i_table_name, null, null, null) r;
end;
$$;
