-- Schema vedur_work: what is made at run time, that is generated capture functions and staging tables.
-- It is apart from schema vedur, because functions that run with their owner's rights call into vedur by
-- name: anybody who could create there could add an overload that is called instead. Nothing calls into vedur_work by
-- name; what reads a table there with its owner's rights makes sure that the owner made it (vedur.raw_stage).
create schema if not exists vedur_work;
comment on schema vedur_work is 'Vedur: generated capture functions and staging tables; others may create here';

do $$
declare
    _role text;
    _function record;
begin
    -- Roles may be missing, where the installer lacked the right to create them.
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('revoke create on schema vedur from %I', _role);
            execute pg_catalog.format('grant usage, create on schema vedur_work to %I', _role);
        end if;
    end loop;
    -- Functions of captures that were made when they still lived in vedur; their triggers follow.
    for _function in
        select p.oid::pg_catalog.regprocedure as name
        from pg_catalog.pg_proc as p
        where p.pronamespace = 'vedur'::pg_catalog.regnamespace
            and p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype
            and p.proname ~ '^capture_[0-9]+_'
    loop
        begin
            execute pg_catalog.format('alter function %s set schema vedur_work', _function.name);
        exception
            when insufficient_privilege or duplicate_function then
                raise warning 'function % stays in schema "vedur": %', _function.name, sqlerrm;
        end;
    end loop;
end;
$$;
