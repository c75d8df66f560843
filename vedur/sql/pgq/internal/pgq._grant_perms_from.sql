create or replace function pgq._grant_perms_from(src_schema text, src_table text, dst_schema text, dst_table text)
returns integer
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Gives a table the grants that another one has.
--
-- Parameters:
--     src_schema, src_table   table to take the grants from
--     dst_schema, dst_table   table to give them to
-- Returns: 1; null if an argument is null
-- Writes: permissions
-- Raises: undefined_table
-- ----------------------------------------------------------------------
declare
    _dst regclass := pg_catalog.format('%I.%I', dst_schema, dst_table)::regclass;
    _grant record;
begin
    for _grant in
        select a.privilege_type, a.is_grantable, a.grantee, r.rolname
        from pg_catalog.pg_class c
        cross join lateral pg_catalog.aclexplode(c.relacl) a
        left join pg_catalog.pg_roles r on r.oid = a.grantee
        where c.oid = pg_catalog.format('%I.%I', src_schema, src_table)::regclass
            and a.grantee <> c.relowner
            -- MAINTAIN and whatever comes later stay with the owner
            and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')
    loop
        execute pg_catalog.format('grant %s on %s to %s%s',
            _grant.privilege_type, _dst,
            case when _grant.grantee = 0 then 'public' else pg_catalog.quote_ident(_grant.rolname) end,
            case when _grant.is_grantable then ' with grant option' else '' end);
    end loop;
    return 1;
end;
$$;
