-- Rows of users are in there: whoever runs nodes may read and forget them. Only who sets nodes up may cut a queue: the role of a
-- worker could otherwise take events away from the nodes below a healthy branch.
revoke all on function vedur.keep_lost_events(text, bigint, uuid) from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            if _role = 'pgq_admin' then
                execute pg_catalog.format('grant execute on function vedur.keep_lost_events(text, bigint, uuid) to %I', _role);
            end if;
            execute pg_catalog.format('grant select, delete on vedur.lost_event to %I', _role);
        end if;
    end loop;
end;
$$;
