-- Consumers that write to this database call the functions, which work with the rights of the schema's owner; the tables
-- stay closed. Running it again changes nothing; without the role only the owner may call them.
do $grants$
begin
    grant usage on schema pgq_ext to public;
    revoke all on all functions in schema pgq_ext from public;
    grant execute on function pgq_ext.version() to public;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_writer') then
        grant execute on all functions in schema pgq_ext to pgq_writer;
    end if;
end;
$grants$;
