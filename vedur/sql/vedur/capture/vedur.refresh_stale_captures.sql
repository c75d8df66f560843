create or replace function vedur.refresh_stale_captures()
returns integer
language plpgsql
as $$
-- Refresh the capture of every table whose shape has changed since its functions were written.
--
-- Returns: how many tables were refreshed.
-- Writes: functions of schema vedur_work; triggers, where a key became DEFERRABLE or is so no more.
-- Errors: none; a table whose capture cannot be written stays on the slow path, with a warning.
--
-- A function belongs to the table named in its name, and its text holds the shape that it was written for.
declare
    _table record;
    _count int := 0;
begin
    for _table in
        select distinct t.tgrelid as relid
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_proc as p on p.oid = t.tgfoid
        where p.pronamespace in ('vedur'::regnamespace, 'vedur_work'::regnamespace)
            and p.proname ~ '^capture_[0-9]+_'
            and strpos(p.prosrc, 'vedur.capture_shape(') > 0
            and strpos(p.prosrc, vedur.capture_shape(t.tgrelid)) = 0
        union
        select m.relid from vedur.capture_misplaced(null) as m
    loop
        begin
            perform vedur.refresh_capture(_table.relid::regclass::text);
            _count := _count + 1;
        exception
            when others then
                raise warning 'capture of table "%" stays on the slow path: %',
                    _table.relid::regclass, sqlerrm;
        end;
    end loop;
    return _count;
end;
$$;
