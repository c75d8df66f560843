-- Roles of the queue: reader (consumers), writer (producers), admin (both, plus ticker and maintenance).
-- Roles belong to the whole cluster, so they may exist already, and the installing role may not be allowed
-- to create them; the queue works without them, only for its owner.
do $roles$
declare
    _role text;
begin
    foreach _role in array array['pgq_reader', 'pgq_writer', 'pgq_admin'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            continue;
        end if;
        begin
            execute format('create role %I', _role);
        exception
            when duplicate_object or unique_violation then
                null;  -- another installation in the same cluster was faster
            when insufficient_privilege then
                raise warning 'role "%" is missing and cannot be created by "%": ask a role with CREATEROLE to run "create role %"',
                    _role, current_user, _role;
        end;
    end loop;

    foreach _role in array array['pgq_reader', 'pgq_writer'] loop
        if not exists (select 1 from pg_catalog.pg_roles where rolname = _role)
            or not exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_admin')
            or pg_catalog.pg_has_role('pgq_admin', _role, 'member')
        then
            continue;
        end if;
        begin
            execute format('grant %I to pgq_admin', _role);
        exception
            when insufficient_privilege then
                raise warning 'role "%" cannot be granted to "pgq_admin" by "%": ask a role with CREATEROLE to run "grant % to pgq_admin"',
                    _role, current_user, _role;
        end;
    end loop;
end;
$roles$;
