create or replace function londiste.create_partition(
    i_table text,
    i_part text,
    i_pkeys text,
    i_part_field text,
    i_part_time timestamptz,
    i_part_period text)
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Create the partition of a table that a moment belongs to, unless it is there.
--
-- Parameters: i_table - parent; i_part - partition; i_pkeys - key columns, comma separated,
--             used when the parent has no primary key; i_part_field - column that decides,
--             NULL for no check; i_part_time - a moment inside; i_part_period - hour, day,
--             week, month, year.
-- Returns: 1 created, 0 there already.
-- Writes: the partition, with the parent's columns, defaults, indexes, constraints, grants,
--         triggers and rules; what a declarative partition gets by itself is not made again.
-- Raises: undefined_table for no parent; invalid_parameter_value for an unknown period.
-- ----------------------------------------------------------------------
declare
    _parent text := londiste.make_fqname(i_table);
    _part text := londiste.make_fqname(i_part);
    _parent_rel text := londiste.quote_fqname(_parent);
    _part_rel text := londiste.quote_fqname(_part);
    _from text;
    _to text;
    _grant record;
begin
    if londiste.find_table_oid(_part) is not null then
        return 0;
    end if;
    perform _parent_rel::regclass;
    -- One creator at a time; readers and writers of the parent go on.
    perform pg_advisory_xact_lock(hashtext('londiste.create_partition'), hashtext(_parent));
    if londiste.find_table_oid(_part) is not null then
        return 0;
    end if;

    if i_part_field is not null then
        _from := date_trunc(i_part_period, i_part_time)::text;
        _to := (date_trunc(i_part_period, i_part_time) + ('1 ' || i_part_period)::interval)::text;
    end if;

    if londiste.find_rel_oid(_parent, 'p') is not null then
        execute format('create table %s partition of %s for values from (%L) to (%L)',
            _part_rel, _parent_rel, _from, _to);
    else
        execute format('create table %s (like %s including all) inherits (%s)',
            _part_rel, _parent_rel, _parent_rel);
        if i_part_field is not null then
            execute format('alter table %s add check (%I >= %L and %I < %L)',
                _part_rel, i_part_field, _from, i_part_field, _to);
        end if;
        perform londiste.copy_table_actions(_parent_rel::regclass, _part_rel::regclass);
    end if;

    if coalesce(i_pkeys, '') <> ''
        and position('k' in londiste.find_column_types(_part)) = 0
    then
        execute format('alter table %s add primary key (%s)', _part_rel,
            (select string_agg(quote_ident(trim(c.name)), ', ' order by c.nr)
             from unnest(string_to_array(i_pkeys, ',')) with ordinality c (name, nr)));
    end if;

    for _grant in
        select a.privilege_type as priv, a.is_grantable,
            case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
                as grantee
        from pg_catalog.pg_class c, lateral aclexplode(c.relacl) a
        where c.oid = londiste.find_table_oid(_parent)
            and a.grantee <> c.relowner
    loop
        execute 'grant ' || _grant.priv || ' on ' || _part_rel || ' to ' || _grant.grantee
            || case when _grant.is_grantable then ' with grant option' else '' end;
    end loop;
    return 1;
end;
$$;
