create or replace function vedur.capture_trusts(i_relid regclass)
returns boolean
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether a table belongs to the role that asks, so that reading the table gives its owner no right.
--
-- Parameters: i_relid - the table.
-- Returns: true for a table without children of the same role.
-- Writes: nothing.
--
-- Not immutable in truth, but PostgreSQL computes a call with a constant once and again after a change of the table,
-- its owner among them (see vedur.capture_shape). Of children it would not hear, nor of a superuser who is none any
-- more: vedur.capture_may_read looks at both each time.
begin
    return exists (
        select
        from pg_class as c
        where c.oid = i_relid
            and c.relkind = 'r'
            and not c.relhassubclass
            and vedur.capture_owned(c.oid));
end;
$$;
