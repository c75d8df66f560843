create or replace function vedur.may_have_rows(i_relid oid)
returns boolean
language plpgsql
stable
set lock_timeout = '200ms'
set row_security = off
as $$
-- Tell whether a table has rows.
--
-- Parameters: i_relid - the table.
-- Returns: true if it has, or if the caller may not see or lock it now.
-- Writes: nothing.
declare
    _found boolean;
begin
    if pg_catalog.pg_relation_size(i_relid) = 0 then
        return false;
    end if;
    execute format('select exists (select from only %s)', i_relid::regclass) into _found;
    return _found;
exception
    when others then
        return true;
end;
$$;
