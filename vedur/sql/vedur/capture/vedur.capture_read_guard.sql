create or replace function vedur.capture_read_guard(i_relid oid)
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Refuse to read a table whose owner could run own functions that way (vedur.capture_may_read).
--
-- Parameters: i_relid - a table that capture reads as its owner.
-- Returns: nothing.
-- Writes: nothing.
-- Errors: insufficient_privilege.
begin
    if not vedur.capture_may_read(i_relid) then
        raise exception 'capture cannot read table "%", which is changed from within its own statements or has a deferrable key, as role "%"',
            i_relid::regclass, current_user
            using errcode = 'insufficient_privilege',
                detail = case current_setting('transaction_isolation')
                    when 'read committed' then 'Functions in its indexes or checks would run with the rights of that role.'
                    else 'Whether functions in its indexes or checks would run with the rights of that role cannot be told in this isolation level.'
                end,
                hint = 'Let the owner of the table run "add-table" (remove it first), so that capture has no other rights than his.';
    end if;
end;
$$;
