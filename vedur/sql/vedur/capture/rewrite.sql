-- Functions of an earlier form (vedur.capture_shape names it) are written again at once, so that no row has to take
-- the slow path after an upgrade. No table is locked. Those that cannot be written wait for vedur.refresh_stale_captures.
-- Form 2: rows that are not the latest any more are logged as they are. Form 3: deletes of a partition are known, and
-- every event of a partition names the table that the trigger was made for.
do $$
declare
    _fn record;
begin
    for _fn in
        select distinct on (p.oid) t.tgrelid, p.pronamespace::regnamespace as schema, p.proname, obj_description(p.oid, 'pg_proc')::jsonb as spec
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_proc as p on p.oid = t.tgfoid
        where p.pronamespace in ('vedur'::regnamespace, 'vedur_work'::regnamespace)
            and p.proname ~ '^capture_[0-9]+_'
            and strpos(p.prosrc, vedur.capture_shape(t.tgrelid)) = 0
    loop
        begin
            execute format(
                'create or replace function %s.%I() returns trigger language plpgsql security definer as %L',
                _fn.schema, _fn.proname, vedur.capture_source(
                    _fn.tgrelid, _fn.spec ->> 'format',
                    array(select jsonb_array_elements_text(_fn.spec -> 'args'))));
        exception
            when others then
                raise warning 'capture of table "%" stays on the slow path: %', _fn.tgrelid::regclass, sqlerrm;
        end;
    end loop;
end;
$$;
