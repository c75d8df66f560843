-- Those who run nodes keep the watch and dismiss what it found; observers read it.
revoke all on function vedur.table_problems(text), vedur.mend_queue(text) from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select, insert, update, delete on vedur.table_watch, vedur.table_change to %I', _role);
            execute pg_catalog.format('grant execute on function vedur.mend_queue(text) to %I', _role);
        end if;
    end loop;
    foreach _role in array array['pgq_admin', 'londiste_writer', 'pgq_reader', 'londiste_reader'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant execute on function vedur.table_problems(text) to %I', _role);
        end if;
    end loop;
end;
$$;
