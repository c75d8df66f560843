create or replace function vedur.attach_partition(
    i_parent text,
    i_part text,
    i_from timestamptz,
    i_period text)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Make a partition of a table that is declared partitioned, without waiting for those who read or write the table.
--
-- CREATE TABLE ... PARTITION OF locks the whole table against all others; ATTACH lets them go on. What the partition
-- is in the end is the same: its indexes, keys and row triggers come with ATTACH.
--
-- Parameters:
--     i_parent    the table, not quoted
--     i_part      the partition, not quoted
--     i_from      where its time begins; the session's time zone says what its text is
--     i_period    hour, day, month or year: how long that is
-- Returns: nothing
-- Writes: the partition, with the columns, constraints, place and grants of the table
-- Raises: what the statements raise, such as lock_not_available for a default partition that others read
-- ----------------------------------------------------------------------
declare
    _parent text := londiste.quote_fqname(i_parent);
    _part text := londiste.quote_fqname(i_part);
    _place text;
    _grant record;
begin
    select coalesce(' using ' || quote_ident(m.amname), '') || coalesce(' tablespace ' || quote_ident(s.spcname), '')
    into _place
    from pg_catalog.pg_class c
        left join pg_catalog.pg_am m on m.oid = c.relam
        left join pg_catalog.pg_tablespace s on s.oid = c.reltablespace
    where c.oid = londiste.find_table_oid(i_parent);
    execute format(
        'create table %s (like %s including defaults including constraints including generated'
        ' including storage including compression)%s', _part, _parent, _place);
    execute format('alter table %s attach partition %s for values from (%L) to (%L)',
        _parent, _part, i_from::text, (i_from + ('1 ' || i_period)::interval)::text);
    for _grant in
        select a.privilege_type as priv, a.is_grantable,
            case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as grantee
        from pg_catalog.pg_class c, lateral aclexplode(c.relacl) a
        where c.oid = londiste.find_table_oid(i_parent) and a.grantee <> c.relowner
    loop
        execute format('grant %s on %s to %s%s', _grant.priv, _part, _grant.grantee,
            case when _grant.is_grantable then ' with grant option' else '' end);
    end loop;
end;
$$;
