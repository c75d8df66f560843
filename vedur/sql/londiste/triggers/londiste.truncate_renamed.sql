create or replace function londiste.truncate_renamed()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- TRUNCATE of a table, sent under its name in the set. The triggers of pgq take no expressions for
-- TRUNCATE, so they would send the name on this node, which other nodes do not know; and they
-- need rights on the queue, which the owner of a table need not have. Not for public: a trigger
-- made by anybody could name any table.
--
-- Parameters: trigger arguments: queue, name in the set.
-- Returns: NULL, it is an AFTER STATEMENT trigger.
-- Writes: event R; none in role "local", like every trigger of a queue.
-- Raises: errors of pgq.insert_event, as "Insert into queue disallowed".
-- ----------------------------------------------------------------------
begin
    if current_setting('session_replication_role') <> 'local' then
        perform pgq.insert_event(tg_argv[0], 'R', '', tg_argv[1], null, null, null);
    end if;
    return null;
end;
$$;
