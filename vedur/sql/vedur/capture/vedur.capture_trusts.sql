create or replace function vedur.capture_trusts(i_relid regclass)
returns boolean
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether a table's owner has as many rights as the role that asks, so that reading the table gives him none.
--
-- Parameters: i_relid - the table.
-- Returns: true for a table without children of the same role or of a superuser.
-- Writes: nothing.
--
-- Not immutable in truth, but PostgreSQL computes a call with a constant once and again after a change of the table,
-- its owner among them (see vedur.capture_shape). Of children it would not hear.
begin
    return exists (
        select
        from pg_class as c
            join pg_roles as r on r.oid = c.relowner
        where c.oid = i_relid
            and c.relkind = 'r'
            and not c.relhassubclass
            and (r.rolsuper or r.rolname = current_user));
end;
$$;
