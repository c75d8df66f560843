create or replace function vedur.refresh_capture(
    i_table_name text,
    out ret_code int,
    out ret_note text)
language plpgsql
as $$
-- Write the capture functions of a table again, so that they fit its present shape, and its triggers where they fire
-- at the wrong time for its key.
--
-- Parameters: i_table_name - as for regclass.
-- Returns: 200 and how many; 404 no such table, or none of its triggers has a generated function.
-- Writes: functions of schema vedur_work; triggers of the table.
-- Errors: those of vedur.place_capture.
--
-- Events are right without it: a function that no longer fits takes the slow path for each row. After a
-- restore of a dump, where tables have other oids, the function keeps its old name.
declare
    _fn record;
    _relid oid := to_regclass(i_table_name);
    _count int := 0;
    _placed int := 0;
begin
    for _fn in
        select distinct p.oid, p.pronamespace::regnamespace as schema, p.proname, obj_description(p.oid, 'pg_proc')::jsonb as spec
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_proc as p on p.oid = t.tgfoid
        where t.tgrelid = _relid
            and p.pronamespace in ('vedur'::regnamespace, 'vedur_work'::regnamespace)
            and p.proname ~ '^capture_[0-9]+_'
    loop
        execute format(
            'create or replace function %s.%I() returns trigger language plpgsql security definer as %L',
            _fn.schema, _fn.proname, vedur.capture_source(
                _relid, _fn.spec ->> 'format',
                array(select jsonb_array_elements_text(_fn.spec -> 'args'))));
        _count := _count + 1;
    end loop;
    if _relid is not null then
        _placed := vedur.place_capture(_relid);
    end if;
    select case when _count + _placed > 0 then 200 else 404 end,
        format('%s capture functions of table "%s" written anew', _count, i_table_name)
    into ret_code, ret_note;
end;
$$;
