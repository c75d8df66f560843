-- Ticks and positions are for those who run nodes, not for everybody.
revoke all on function
    vedur.begin_moment(text), vedur.write_moment(text, bigint, text), vedur.end_moment(text),
    vedur.set_hold(text, text, bigint, interval), vedur.drop_hold(text, text, bigint),
    vedur.get_hold(text, text, bigint), vedur.lock_position(text, text)
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format(
                'grant execute on function vedur.begin_moment(text), vedur.write_moment(text, bigint, text),'
                ' vedur.end_moment(text), vedur.set_hold(text, text, bigint, interval),'
                ' vedur.drop_hold(text, text, bigint), vedur.get_hold(text, text, bigint),'
                ' vedur.lock_position(text, text) to %I', _role);
            execute pg_catalog.format('grant select, insert on vedur.repair_log to %I', _role);
            -- a table that is masked from now on: what was kept of its rows is forgotten
            execute pg_catalog.format('grant update (row_key, old_row, new_row) on vedur.repair_log to %I', _role);
            execute pg_catalog.format('grant select on vedur.hold to %I', _role);
        end if;
    end loop;
end;
$$;
