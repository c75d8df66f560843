create or replace function vedur.capture_misplaced(
    i_relid oid,
    out relid oid,
    out trigger_name name,
    out deferred boolean)
returns setof record
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- List row triggers of capture that fire at another time than the key of their table needs by now.
--
-- Parameters: i_relid - the table, or NULL for all.
-- Returns: table, trigger, and whether it must be deferred to the end of the transaction.
-- Writes: nothing.
declare
    _tg record;
    _wanted record;
begin
    for _tg in
        select t.tgrelid, t.tgname, t.tgdeferrable, case
                when n.nspname = 'pgq' then array(
                    select convert_from(decode(a, 'escape'), getdatabaseencoding())
                    from unnest(string_to_array(encode(t.tgargs, 'escape'), E'\\000')) with ordinality as u (a, nr)
                    where u.nr <= t.tgnargs
                    order by u.nr)
                else array(select jsonb_array_elements_text(obj_description(p.oid, 'pg_proc')::jsonb -> 'args'))
            end as args
        from pg_trigger as t
            join pg_proc as p on p.oid = t.tgfoid
            join pg_namespace as n on n.oid = p.pronamespace
            join pg_language as l on l.oid = p.prolang
        where not t.tgisinternal
            and t.tgparentid = 0
            and t.tgtype & 67 = 1  -- for each row, neither before nor instead of
            and l.lanname = 'plpgsql'
            and (i_relid is null or t.tgrelid = i_relid)
            and (n.nspname = 'pgq' and p.proname in ('jsontriga', 'logutriga', 'sqltriga')
                or n.nspname in ('vedur', 'vedur_work') and p.proname ~ '^capture_[0-9]+_')
    loop
        continue when 'deny' = any (_tg.args);
        select * into _wanted from vedur.capture_deferral(_tg.tgrelid, _tg.tgname::text, _tg.args);
        if _wanted.deferred <> _tg.tgdeferrable and _wanted.refusal is null then
            relid := _tg.tgrelid;
            trigger_name := _tg.tgname;
            deferred := _wanted.deferred;
            return next;
        end if;
    end loop;
end;
$$;
