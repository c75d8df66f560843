-- Reigns are for everybody to read: workers of other nodes compare them, applications ask who is root. Who applies events notes reigns that they tell
-- of. Opening and closing a root is for those who may use pgq_node.demote_root and pgq_node.promote_branch, and for nobody else.
grant select on vedur.reign to public;
revoke all on function
    vedur.begin_reign(text, text, uuid, boolean), vedur.note_reign(text, text), vedur.promote(text, uuid, text, bigint),
    vedur.bar_epoch(text, uuid), vedur.depose(text, uuid, text, bigint), vedur.reopen_root(text), vedur.keep_root(text),
    vedur.newest_tick(text)
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant execute on function vedur.note_reign(text, text) to %I', _role);
            execute pg_catalog.format('grant insert, update, delete on vedur.reign to %I', _role);
            execute pg_catalog.format('grant select, insert, update, delete on vedur.barred_epoch, vedur.deposed to %I', _role);
        end if;
    end loop;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_admin') then
        grant execute on function
            vedur.begin_reign(text, text, uuid, boolean), vedur.promote(text, uuid, text, bigint), vedur.bar_epoch(text, uuid),
            vedur.depose(text, uuid, text, bigint), vedur.reopen_root(text), vedur.keep_root(text), vedur.newest_tick(text)
        to pgq_admin;
    end if;
    foreach _role in array array['pgq_reader', 'londiste_reader'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select on vedur.deposed to %I', _role);
        end if;
    end loop;
end;
$$;
