-- Names of nodes are for those who run nodes, not for everybody.
revoke all on function vedur.rename_node(text, text, text, integer) from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format(
                'grant execute on function vedur.rename_node(text, text, text, integer) to %I', _role);
        end if;
    end loop;
end;
$$;
