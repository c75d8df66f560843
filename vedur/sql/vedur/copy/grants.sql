-- Who copies from a node reads its queue; such a role may mark its copies.
revoke all on function vedur.mark_copies(text, integer[], text), vedur.get_copy_mark(text, text) from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_reader', 'pgq_admin', 'londiste_reader', 'londiste_writer'] loop
        continue when not exists (select 1 from pg_catalog.pg_roles where rolname = _role);
        execute pg_catalog.format(
            'grant execute on function vedur.mark_copies(text, integer[], text), vedur.get_copy_mark(text, text) to %I',
            _role);
    end loop;
end;
$$;
