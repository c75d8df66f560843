-- Who may attach bulk capture to tables: the administrators of queues. Missing roles are not an error, since
-- the installer may have lacked the right to create them.
do $$
begin
    if exists (select from pg_catalog.pg_roles where rolname = 'pgq_admin') then
        grant execute on function vedur.capture_bulk() to pgq_admin;
    end if;
end;
$$;
