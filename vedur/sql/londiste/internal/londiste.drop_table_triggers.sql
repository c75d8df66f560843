create or replace function londiste.drop_table_triggers(i_queue_name text, i_table_name text)
returns void
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Remove the triggers that londiste put on a table for one queue.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - name in the set.
-- Returns: nothing; fine when there are none or no table.
-- Writes: triggers of the table.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
declare
    _oid oid;
begin
    select londiste.find_table_oid(coalesce(t.dest_table, t.table_name))
    into _oid
    from londiste.table_info t
    where t.queue_name = i_queue_name
        and t.table_name = i_table_name;
    if not found then
        return;
    end if;

    if _oid is null and to_regclass('vedur.table_watch') is not null then
        -- It may have got another name by hand.
        execute 'select w.relid from vedur.table_watch as w where w.queue_name = $1 and w.table_name = $2'
        into _oid
        using i_queue_name, i_table_name;
    end if;

    perform londiste.drop_trigger(_oid, '_londiste_' || i_queue_name);
    perform londiste.drop_trigger(_oid, 'zzz__londiste_' || i_queue_name);
    perform londiste.drop_trigger(_oid, '_londiste_' || i_queue_name || '_truncate');
    perform londiste.drop_partition_triggers(i_queue_name, _oid);
end;
$$;
