create or replace function londiste.find_rel_oid(i_fqname text, i_kind text)
returns oid
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- Find a relation by name and kind.
--
-- Parameters: i_fqname - name, not quoted; i_kind - relkind; r also finds partitioned tables.
-- Returns: oid, NULL when there is none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _part record;
    _oid oid;
begin
    select * into _part
    from londiste.split_fqname(i_fqname);

    select c.oid
    into _oid
    from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = _part.schema_part
        and c.relname = _part.name_part
        and (c.relkind::text = i_kind or i_kind = 'r' and c.relkind = 'p');
    return _oid;
end;
$$;
