-- A worker makes its staging tables in schema vedur. They are its own: nobody else may read them.
do $$
begin
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_writer') then
        grant create on schema vedur to londiste_writer;
    end if;
end;
$$;
