create or replace function vedur.place_capture(i_relid oid)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
-- Create again the capture triggers of a table that fire at the wrong time for its key.
--
-- Parameters: i_relid - the table.
-- Returns: how many.
-- Writes: triggers of the table.
-- Errors: those of DROP and CREATE TRIGGER; the lock on the table is not there within some seconds.
declare
    _tg record;
    _count int := 0;
begin
    for _tg in
        select m.trigger_name, m.deferred, t.tgtype, substring(pg_get_triggerdef(t.oid) from ' FOR EACH ROW .*$') as rest
        from vedur.capture_misplaced(i_relid) as m
            join pg_trigger as t on t.tgrelid = m.relid and t.tgname = m.trigger_name
    loop
        execute format('drop trigger %I on %s', _tg.trigger_name, i_relid::regclass);
        execute format(
            'create %s %I after %s on %s %s%s', case when _tg.deferred then 'constraint trigger' else 'trigger' end, _tg.trigger_name,
            concat_ws(
                ' or ', case when _tg.tgtype & 4 > 0 then 'insert' end, case when _tg.tgtype & 16 > 0 then 'update' end,
                case when _tg.tgtype & 8 > 0 then 'delete' end),
            i_relid::regclass, case when _tg.deferred then 'deferrable initially deferred' end, _tg.rest);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
