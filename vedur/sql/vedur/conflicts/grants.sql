-- They run with their caller's rights: rows are written as the worker writes them.
revoke all on function
    vedur.urldecode(text), vedur.urldecode_row(text), vedur.columns_equal(text, text, text[]),
    vedur.merge_on_time(text, text, text, text, text, text, text, text, text, text, text, text)
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format(
                'grant execute on function vedur.urldecode(text), vedur.urldecode_row(text),'
                ' vedur.columns_equal(text, text, text[]),'
                ' vedur.merge_on_time(text, text, text, text, text, text, text, text, text, text, text, text)'
                ' to %I', _role);
        end if;
    end loop;
end;
$$;
