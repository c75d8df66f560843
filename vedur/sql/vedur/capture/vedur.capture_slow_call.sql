create or replace function vedur.capture_slow_call(i_format text, i_args text)
returns text
language sql
immutable
as $q$
-- Write the part of a generated row trigger that leaves the work to vedur.capture_slow.
--
-- Parameters: i_format - json, urlenc or sql; i_args - the trigger's arguments, as an SQL expression.
-- Returns: PL/pgSQL text.
-- Writes: nothing.
    select format($f$if tg_op operator(pg_catalog.=) 'UPDATE' then
        perform vedur.capture_slow(tg_relid, tg_op, %1$L, %2$s, new, old, new.ctid, new.xmax, old.xmin, tg_name);
    elsif tg_op operator(pg_catalog.=) 'INSERT' then
        perform vedur.capture_slow(tg_relid, tg_op, %1$L, %2$s, new, new, new.ctid, new.xmax, null::pg_catalog.xid, tg_name);
    elsif tg_op operator(pg_catalog.=) 'DELETE' then
        perform vedur.capture_slow(tg_relid, tg_op, %1$L, %2$s, old, old, null::pg_catalog.tid, null::pg_catalog.xid, old.xmin, tg_name);
    else
        perform vedur.capture_slow(
            tg_relid, tg_op, %1$L, %2$s, null::pg_catalog.text, null::pg_catalog.text, null::pg_catalog.tid, null::pg_catalog.xid,
            null::pg_catalog.xid, tg_name);
    end if;$f$, i_format, i_args)
$q$;
