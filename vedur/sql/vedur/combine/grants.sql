-- Who runs a node merges parts into a combined queue, and follows them.
revoke all on function
    vedur.note_script(text, text, text),
    vedur.publish_part(text, integer, bigint[], bigint, bigint, timestamptz, bigint, text, text),
    vedur.follow_part(text, text, bigint, timestamptz, bigint, text, text)
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format(
                'grant execute on function vedur.note_script(text, text, text),'
                ' vedur.publish_part(text, integer, bigint[], bigint, bigint, timestamptz, bigint, text, text),'
                ' vedur.follow_part(text, text, bigint, timestamptz, bigint, text, text) to %I', _role);
        end if;
    end loop;
end;
$$;
