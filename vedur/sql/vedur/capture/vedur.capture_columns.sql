create or replace function vedur.capture_columns(
    i_relid oid,
    out col_nr int,
    out col_name text,
    out col_type oid,
    out magic text)
returns setof record
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- List the columns of a table that a capture trigger can see.
--
-- Parameters: i_relid - the table.
-- Returns: one row per live column in table order; virtual generated columns are left out, since they
--     have no value in a trigger. magic is the event field that a column _pgq_ev_* overrides, else NULL.
-- Writes: nothing.
--
-- Names and types come from the parser, which sees the table as it is now. A query on pg_attribute
-- would see it as it was at the snapshot of a repeatable read transaction, and the trigger would lose
-- a column that another session has added since. The path has it named with its schema: a table may be called
-- like a type of the server (json, path, point).
declare
    _names text[];
    _types oid[];
begin
    execute format(
        'select array(select json_object_keys(row_to_json("vedur.row".*))) from (select (null::%s).*) as "vedur.row"',
        i_relid::regclass)
    into _names;
    if cardinality(_names) = 0 then
        return;
    end if;
    execute (
        select format(
            'select array[%s]::oid[]',
            string_agg(format('pg_typeof((null::%s).%I)', i_relid::regclass, n), ', ' order by o))
        from unnest(_names) with ordinality as u (n, o))
    into _types;
    return query
        select
            u.nr::int,
            u.name,
            u.type,
            case when u.name ~ '^_pgq_ev_(type|data|extra[1-4])$' then substr(u.name, 6) end
        from unnest(_names, _types) with ordinality as u (name, type, nr)
        where not exists (
            select from pg_catalog.pg_attribute as a
            where a.attrelid = i_relid
                and a.attname = u.name
                and a.attgenerated = 'v')
        order by u.nr;
end;
$$;
