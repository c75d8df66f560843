create or replace function londiste.find_table_fkeys(i_table_name text)
returns setof londiste.pending_fkeys
language plpgsql
stable
strict
-- Without other schemas in the path PostgreSQL writes the referenced table with its schema, so
-- the statement means the same in any session.
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- List foreign keys from and to a table, replicated or not.
--
-- Parameters: i_table_name - table, not quoted.
-- Returns: one row per key with the statement that creates it; no rows for no table. Parts of
--          a key of a partitioned table are not listed.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _oid oid := londiste.find_table_oid(i_table_name);
begin
    return query
        select fn.nspname || '.' || f.relname,
            tn.nspname || '.' || t.relname,
            k.conname::text,
            'alter table ' || case when f.relkind = 'p' then '' else 'only ' end
                || quote_ident(fn.nspname) || '.' || quote_ident(f.relname)
                || ' add constraint ' || quote_ident(k.conname) || ' '
                || pg_get_constraintdef(k.oid)
        from pg_constraint k
            join pg_class f on f.oid = k.conrelid
            join pg_namespace fn on fn.oid = f.relnamespace
            join pg_class t on t.oid = k.confrelid
            join pg_namespace tn on tn.oid = t.relnamespace
        where k.contype = 'f'
            and k.conparentid = 0
            and (k.conrelid = _oid or k.confrelid = _oid)
        order by 1, 3;
end;
$$;
