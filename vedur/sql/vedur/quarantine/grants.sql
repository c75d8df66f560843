-- Rows of replicated tables are in here, and events that the worker will apply or leave out: for those who run nodes, not
-- for everybody. An administrator of queues may look.
do $$
begin
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_admin') then
        revoke insert, update, delete on vedur.replay_error, vedur.skip_request, vedur.quarantine, vedur.quarantine_log
            from pgq_admin;
        grant select on vedur.replay_error, vedur.skip_request, vedur.quarantine, vedur.quarantine_log,
            vedur.quarantine_events to pgq_admin;
    end if;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_writer') then
        grant select, insert, update, delete on vedur.replay_error to londiste_writer;
        grant select, insert, update on vedur.skip_request to londiste_writer;
        grant select, insert, delete on vedur.quarantine to londiste_writer;
        grant select, insert on vedur.quarantine_log to londiste_writer;
        -- a table that is masked from now on: what was kept of its rows is forgotten
        grant update (ev_data, ev_extra2, ev_extra3, ev_extra4, row_key, message) on vedur.quarantine_log to londiste_writer;
        grant select on vedur.quarantine_events to londiste_writer;
    end if;
end;
$$;
