create or replace function vedur.create_bulk_triggers(
    i_relid oid,
    i_trigger_name text,
    i_ops text,
    i_queue_name text,
    i_format text)
returns void
language plpgsql
as $$
-- Create the statement triggers of a bulk capture.
--
-- Parameters: i_relid - the table; i_trigger_name; i_ops - any of I, U, D; i_queue_name; i_format.
-- Writes: triggers "<name>" for insert, "<name>_update", "<name>_delete", and "<name>_before" for all.
--     A capture without inserts has no trigger "<name>".
declare
    _op record;
    _events text;
begin
    for _op in
        select *
        from (values
            ('insert', '', 'new table as new_rows'),
            ('update', '_update', 'old table as old_rows new table as new_rows'),
            ('delete', '_delete', 'old table as old_rows')) as v (name, suffix, tables)
        where position(upper(left(v.name, 1)) in i_ops) > 0
    loop
        _events := concat_ws(' or ', _events, _op.name);
        execute format(
            'create trigger %I after %s on %s referencing %s for each statement execute function vedur.capture_bulk(%L, %L)',
            i_trigger_name || _op.suffix, _op.name, i_relid::regclass, _op.tables, i_queue_name, i_format);
    end loop;
    if _events is not null then
        execute format(
            'create trigger %I before %s on %s for each statement execute function vedur.capture_bulk(%L, %L)',
            i_trigger_name || '_before', _events, i_relid::regclass, i_queue_name, i_format);
    end if;
end;
$$;
