create or replace function londiste.drop_table_fkey(i_from_table text, i_fkey_name text)
returns integer
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Drop a foreign key for now: its statement is stored before it is dropped.
--
-- Parameters: i_from_table - table that has the key, schema.table, not quoted;
--             i_fkey_name - constraint.
-- Returns: 1 dropped, 0 there is no such key.
-- Writes: londiste.pending_fkeys, the constraint.
-- Raises: errors of ALTER TABLE.
-- ----------------------------------------------------------------------
declare
    _key londiste.pending_fkeys;
begin
    select f.*
    into _key
    from londiste.find_table_fkeys(i_from_table) f
    where f.from_table = i_from_table
        and f.fkey_name = i_fkey_name;
    if not found then
        return 0;
    end if;

    insert into londiste.pending_fkeys (from_table, to_table, fkey_name, fkey_def)
    values (_key.from_table, _key.to_table, _key.fkey_name, _key.fkey_def)
    on conflict (from_table, fkey_name) do update
    set to_table = excluded.to_table,
        fkey_def = excluded.fkey_def;

    -- Copies of several parts into one table come here at once: another one may have dropped it.
    execute 'alter table ' || londiste.quote_fqname(i_from_table)
        || ' drop constraint if exists ' || quote_ident(i_fkey_name);
    return 1;
end;
$$;
