create or replace function vedur.drop_capture_triggers(
    i_table_name text,
    i_trigger_name text,
    i_truncate boolean,
    out ret_code int,
    out ret_note text)
language plpgsql
as $$
-- Drop the triggers that vedur.create_capture made under one name, and their function.
--
-- Parameters: i_table_name - as for regclass; i_trigger_name; i_truncate - also "<name>_truncate".
-- Returns: 200 dropped; 404 there is none.
-- Writes: triggers of the table, functions of schema vedur_work.
declare
    _tg record;
    _functions oid[] := '{}';
    _fn oid;
begin
    for _tg in
        select t.tgname, t.tgrelid::regclass as rel, t.tgfoid
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_proc as p on p.oid = t.tgfoid
            join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where t.tgrelid = to_regclass(i_table_name)
            and not t.tgisinternal
            and (n.nspname, p.proname) in (
                select 'pgq', f from unnest('{jsontriga,logutriga,sqltriga}'::name[]) as f
                union all
                select 'vedur', 'capture_bulk'
                union all
                select s, p.proname from unnest('{vedur,vedur_work}'::name[]) as s where p.proname ~ '^capture_[0-9]+_')
            and (i_truncate or t.tgname <> (i_trigger_name || '_truncate')::name)
            and t.tgname in (
                select (i_trigger_name || s)::name
                from unnest(array['', '_update', '_delete', '_before', '_truncate']) as s)
    loop
        execute format('drop trigger %I on %s', _tg.tgname, _tg.rel);
        _functions := _functions || _tg.tgfoid;
    end loop;
    if cardinality(_functions) = 0 then
        select 404, format('no capture "%s" on table "%s"', i_trigger_name, i_table_name)
        into ret_code, ret_note;
        return;
    end if;
    for _fn in
        select p.oid
        from pg_catalog.pg_proc as p
        where p.oid = any (_functions)
            and p.pronamespace in ('vedur'::regnamespace, 'vedur_work'::regnamespace)
            and p.proname ~ '^capture_[0-9]+_'
            and not exists (select from pg_catalog.pg_trigger as t where t.tgfoid = p.oid)
    loop
        execute format('drop function %s', _fn::regprocedure);
    end loop;
    select 200, format('capture "%s" of table "%s" dropped', i_trigger_name, i_table_name)
    into ret_code, ret_note;
end;
$$;
