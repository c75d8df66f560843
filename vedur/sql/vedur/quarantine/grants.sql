-- Rows of replicated tables are in here: for those who run nodes, not for everybody.
do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select, insert, update, delete on vedur.replay_error to %I', _role);
            execute pg_catalog.format('grant select, insert, update on vedur.skip_request to %I', _role);
            execute pg_catalog.format('grant select, insert, delete on vedur.quarantine to %I', _role);
            execute pg_catalog.format('grant select, insert on vedur.quarantine_log to %I', _role);
            execute pg_catalog.format('grant select on vedur.quarantine_events to %I', _role);
        end if;
    end loop;
end;
$$;
