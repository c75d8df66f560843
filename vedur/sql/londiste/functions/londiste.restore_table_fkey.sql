create or replace function londiste.restore_table_fkey(
    i_from_table text,
    i_fkey_name text,
    i_lazy boolean default false)
returns text
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Bring a foreign key back.
--
-- Lazy: the caller runs the statements, each in a transaction of its own, and asks again until
-- the answer is empty: ADD ... NOT VALID needs the table for an instant only, VALIDATE reads
-- it without stopping writers.
--
-- Parameters: i_from_table - table that has the key, schema.table, not quoted;
--             i_fkey_name - constraint; i_lazy - return statements instead of running them.
-- Returns: next statement, empty when there is nothing left to do.
-- Writes: londiste.pending_fkeys, the constraint.
-- Raises: errors of ALTER TABLE; then the key stays stored.
-- ----------------------------------------------------------------------
declare
    _def text;
    _oid oid := londiste.find_table_oid(i_from_table);
    _valid boolean;
    _exists boolean;
begin
    select p.fkey_def
    into _def
    from londiste.pending_fkeys p
    where p.from_table = i_from_table
        and p.fkey_name = i_fkey_name
    for update;
    if not found then
        return '';
    end if;

    select k.convalidated
    into _valid
    from pg_catalog.pg_constraint k
    where k.conrelid = _oid
        and k.conname = i_fkey_name
        and k.contype = 'f';
    _exists := found;

    if i_lazy and _oid is not null then
        if not _exists then
            -- Before version 18 partitioned tables have no unchecked keys.
            if _def ilike '% not valid' or londiste.find_rel_oid(i_from_table, 'p') is not null then
                return _def;
            end if;
            return _def || ' not valid';
        elsif not _valid and _def not ilike '% not valid' then
            return 'alter table '
                || case when londiste.find_rel_oid(i_from_table, 'p') is null then 'only ' else '' end
                || londiste.quote_fqname(i_from_table)
                || ' validate constraint ' || quote_ident(i_fkey_name);
        end if;
    elsif not _exists and _oid is not null then
        execute _def;
    end if;

    delete from londiste.pending_fkeys p
    where p.from_table = i_from_table
        and p.fkey_name = i_fkey_name;
    return '';
end;
$$;
