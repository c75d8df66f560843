-- Roles of readers and of the worker. A role without CREATEROLE may install all the same: then
-- only the owner of the schema can use it, and a warning says so.
do $do$
begin
    if to_regrole('londiste_reader') is null then
        create role londiste_reader nologin;
    end if;
    if to_regrole('londiste_writer') is null then
        create role londiste_writer nologin;
    end if;
    if to_regrole('pgq_reader') is not null
        and not pg_has_role('londiste_reader', 'pgq_reader', 'member')
    then
        grant pgq_reader to londiste_reader;
    end if;
    if to_regrole('pgq_admin') is not null
        and not pg_has_role('londiste_writer', 'pgq_admin', 'member')
    then
        grant pgq_admin to londiste_writer;
    end if;
exception
    when duplicate_object or unique_violation then
        raise notice 'roles of londiste are being created by another session';
    when insufficient_privilege then
        raise warning 'roles londiste_reader and londiste_writer not set up: %', sqlerrm;
end;
$do$;
