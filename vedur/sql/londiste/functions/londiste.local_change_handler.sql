create or replace function londiste.local_change_handler(
    in i_queue_name text,
    in i_table_name text,
    in i_trg_args text[],
    in i_table_attrs text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Replace the settings and the triggers of a table of this node; with no_triggers the triggers that
-- it has stay as they are.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table; i_trg_args - as for
--             londiste.local_add_table; i_table_attrs - urlenc settings.
-- Returns: 200 done; 301 done, but its trigger does not fire first; 400 no such set;
--          403, 405 trigger conflict; 404 not on this node.
-- Writes: londiste.table_info, triggers of the table.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
    _type text;
    _dest text;
    _trg record;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 400;
        ret_note := 'No such set: ' || i_queue_name;
        return;
    end if;

    select coalesce(t.dest_table, t.table_name)
    into _dest
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = _name
        and t.local
    for update;
    if not found then
        ret_code := 404;
        ret_note := 'no such local table: ' || _name;
        return;
    end if;

    select * into _trg
    from londiste.create_trigger(i_queue_name, _name, i_trg_args, _dest, _type);
    if _trg.ret_code >= 400 then
        ret_code := _trg.ret_code;
        ret_note := 'Trigger creation failed for table ' || _name || ': ' || _trg.ret_note;
        return;
    end if;

    update londiste.table_info t
    set table_attrs = i_table_attrs
    where t.queue_name = i_queue_name
        and t.table_name = _name;

    ret_code := case when _trg.ret_code = 301 then 301 else 200 end;
    ret_note := case _trg.ret_code
        when 201 then 'Table handler updated with no triggers: ' || _name
        when 301 then 'Handler changed for table: ' || _name || ', but ' || _trg.ret_note
        else 'Handler changed for table: ' || _name
    end;
end;
$$;
