create or replace function vedur.name_capture(i_queue_name text, i_table_name text, i_relid oid)
returns void
language plpgsql
as $$
-- Let generated capture write the table's name in the set, where an older version made it write the table's own.
--
-- Parameters: i_queue_name; i_table_name - name in the set; i_relid - the table.
-- Returns: nothing.
-- Writes: functions of schema vedur_work.
-- Errors: none; what cannot be written stays as it is, with a warning.
declare
    _fn record;
begin
    for _fn in
        select t.tgname, obj_description(p.oid, 'pg_proc')::jsonb as spec
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_proc as p on p.oid = t.tgfoid and p.pronamespace = 'vedur_work'::regnamespace
        where t.tgrelid = i_relid
            and t.tgname = ('_londiste_' || i_queue_name)::name
            and p.proname = format('capture_%s_%s', i_relid, left(md5(t.tgname), 8))
    loop
        continue when (_fn.spec ->> 'args') ~ '"ev_extra1=';
        begin
            perform vedur.write_capture(i_relid, _fn.tgname::text, _fn.spec ->> 'format',
                array(select jsonb_array_elements_text(_fn.spec -> 'args')) || ('ev_extra1=' || quote_literal(i_table_name)));
        exception
            when others then
                raise warning 'capture of table "%" keeps writing the name of the table itself: %', i_relid::regclass, sqlerrm;
        end;
    end loop;
end;
$$;
