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
    _any boolean;
begin
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
            'pg_catalog.current_setting(''extra_float_digits'') operator(pg_catalog.=) ''1''' end);
end;
$$;
