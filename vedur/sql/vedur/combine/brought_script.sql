-- Which set has brought which script here, and how often. A script of one name and text runs once in a database, whichever of
-- several sets brings it first; londiste.applied_execute has the last text of a name alone, and forgets the one before it.
create table if not exists vedur.brought_script (
    execute_file    text not null,
    text_hash       bytea not null,
    origin          text not null,
    times           integer not null default 1,
    constraint brought_script_pkey primary key (execute_file, text_hash, origin)
);
comment on table vedur.brought_script is 'scripts that came here: which set (origin) has brought each text of a name, and how often';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select, insert, update, delete on vedur.brought_script to %I', _role);
        end if;
    end loop;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.brought_script to londiste_reader;
    end if;
end
$$;
