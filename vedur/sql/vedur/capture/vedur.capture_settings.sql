create or replace function vedur.capture_settings(i_relid oid, i_format text)
returns text
language plpgsql
stable
as $$
-- Write the SQL condition that tells whether a session's settings give the event text of a table.
--
-- Parameters: i_relid - the table; i_format - json, urlenc or sql.
-- Returns: the condition, about those settings only that its column types depend on.
-- Writes: nothing.
declare
    _types oid[] := array(select c.col_type from vedur.capture_columns(i_relid) as c);
    _plain oid[] := array[
        'int2', 'int4', 'int8', 'bool', 'text', 'varchar', 'bpchar', 'name', 'uuid', 'inet', 'cidr', 'time',
        'timetz', 'numeric', 'json', 'jsonb', 'xml', 'oid', 'macaddr', 'bit', 'varbit', 'tsvector']::regtype[];
    _dates oid[] := array['date', 'timestamp', 'timestamptz']::regtype[];
    _known oid[] := array['interval', 'bytea', 'float4', 'float8', 'money']::regtype[];
    _parts text[];
    _any boolean;
begin
    -- The types of the columns, and all that they are made of.
    with recursive part as (
        select unnest(_types) as typid
        union
        select x.typid
        from part as p
            join pg_catalog.pg_type as t on t.oid = p.typid
            cross join lateral (
                select t.typbasetype
                union all
                select t.typelem
                union all
                select r.rngsubtype from pg_catalog.pg_range as r where r.rngtypid = t.oid or r.rngmultitypid = t.oid
                union all
                select a.atttypid from pg_catalog.pg_attribute as a where a.attrelid = t.typrelid and a.attnum > 0
            ) as x (typid)
        where x.typid <> 0
    )
    select array_agg(distinct t.typname::text)
    into _parts
    from part as p
        join pg_catalog.pg_type as t on t.oid = p.typid
    where t.typnamespace = 'pg_catalog'::regnamespace;
    -- Enums are plain; arrays, ranges, composites, domains may contain anything.
    _any := exists (
        select from unnest(_types) as t
        where t <> all (_plain || _dates || _known)
            and (select typtype from pg_catalog.pg_type where oid = t) <> 'e');
    return concat_ws(
        ' and ',
        'pg_catalog.current_setting(''session_replication_role'') operator(pg_catalog.<>) ''local''',
        case when _any or (i_format <> 'json' and _types && _dates) then
            'pg_catalog.left(pg_catalog.current_setting(''datestyle''), 3) operator(pg_catalog.=) ''ISO''' end,
        case when _any or 'interval'::regtype = any (_types) then
            'pg_catalog.current_setting(''intervalstyle'') operator(pg_catalog.=) ''postgres''' end,
        case when _any or 'bytea'::regtype = any (_types) then
            'pg_catalog.current_setting(''bytea_output'') operator(pg_catalog.=) ''hex''' end,
        case when _any or _types && array['float4', 'float8']::regtype[]::oid[] then
            'pg_catalog.current_setting(''extra_float_digits'') operator(pg_catalog.=) ''1''' end,
        case when 'money' = any (_parts) then
            'pg_catalog.current_setting(''lc_monetary'') operator(pg_catalog.~) ''^(C|POSIX)([.]|$)''' end,
        -- Names of objects must be read on other nodes: the slow path writes them with their schemas.
        case when exists (select from unnest(_parts) as p where p ~ '^reg') then 'false' end);
end;
$$;
