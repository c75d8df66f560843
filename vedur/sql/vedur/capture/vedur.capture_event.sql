create or replace function vedur.capture_event(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new text,
    i_old text)
returns text
language plpgsql
stable
as $$
-- Write the query that gives the event of one change.
--
-- Parameters: i_relid - the table; i_op - INSERT, UPDATE or DELETE; i_format - json, urlenc or sql;
--     i_args - the trigger's arguments; i_new, i_old - how the statement refers to the rows.
-- Returns: a select of ev_type, ev_data, ev_extra1 to ev_extra4. It gives no row when when= is false, or
--     when an update changed ignored columns only.
-- Writes: nothing.
-- Errors: update or delete of a table without a key.
declare
    _a record;
    _row text := case i_op when 'DELETE' then i_old else i_new end;
    _pkey text[];
    _pkey_text text;
    _schema text;
    _table text;
    _field text;
    _value text;
    _magic jsonb;
    _fields text[] := '{}';
    _conditions text[] := '{}';
begin
    select * into _a from vedur.capture_arguments(i_args);
    select n.nspname, c.relname
    into _schema, _table
    from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.oid = i_relid;
    _pkey := vedur.capture_key(i_relid, _a.pkey);
    _pkey_text := coalesce(_a.pkey, array_to_string(_pkey, ','));
    if i_op <> 'INSERT' and cardinality(_pkey) = 0 then
        raise exception 'Update/Delete on table without pkey'
            using errcode = 'object_not_in_prerequisite_state', table = _table, schema = _schema,
                hint = format('Add a primary key to "%s.%s" or give the trigger pkey=.', _schema, _table);
    end if;

    select coalesce(jsonb_object_agg(
        c.magic, vedur.capture_value(c.col_type, vedur.capture_ref(_row, c.col_name), 'text')), '{}')
    into _magic
    from vedur.capture_columns(i_relid) as c
    where c.magic is not null;
    foreach _field in array array[
        'ev_type', 'ev_data', 'ev_extra1', 'ev_extra2', 'ev_extra3', 'ev_extra4'] loop
        _value := _magic ->> _field;
        _fields := _fields || format('%s as %I', case
            when vedur.is_literal(_a.exprs ->> _field) then _a.exprs ->> _field
            when _a.exprs ? _field then
                format(E'(select pg_catalog.concat(_value)\nfrom (select (%s\n) as _value from (select (%s).*) as "vedur.row") as _one'
                    || E'\nwhere pg_catalog.num_nulls(_value) = 0)', _a.exprs ->> _field, _row)
            when _value is not null then _value
            when _field = 'ev_type' then quote_literal(case i_format
                when 'json' then format(
                    '{"op":"%s","table":[%s,%s],"pkey":[%s]}', i_op, to_json(_schema), to_json(_table),
                    (select string_agg(to_json(k)::text, ',' order by n)
                     from unnest(_pkey) with ordinality as u (k, n)))
                when 'urlenc' then left(i_op, 1) || ':' || _pkey_text
                else left(i_op, 1)
            end)
            when _field = 'ev_data' then case i_format
                when 'sql' then vedur.capture_fragment(i_relid, i_op, i_new, i_old, _pkey, _a.ignored)
                else vedur.capture_row(i_relid, _row, i_format, _a.ignored)
            end
            when _field = 'ev_extra1' then quote_literal(_schema || '.' || _table)
            when _field = 'ev_extra2' and _a.backup and i_op = 'UPDATE' then vedur.capture_row(
                i_relid, i_old, case i_format when 'json' then 'json' else 'urlenc' end, _a.ignored)
            else 'null'
        end || '::pg_catalog.text', _field);
    end loop;

    if i_op = 'UPDATE' and cardinality(_a.ignored) > 0 then
        select format(
            '(%s or %s)',
            coalesce(vedur.capture_differs(
                i_new, i_old, array_agg(c.col_name) filter (where not c.ign)), 'false'),
            coalesce('not ' || vedur.capture_differs(
                i_new, i_old, array_agg(c.col_name) filter (where c.ign)), 'true'))
        into _value
        from (
            select v.col_name, v.col_name = any (_a.ignored) as ign
            from vedur.capture_columns(i_relid) as v
        ) as c;
        _conditions := _conditions || _value;
    end if;
    if _a.when_expr is not null then
        _conditions := _conditions || format(
            E'(select vedur.capture_when(_value) from (select (%s\n) as _value from (select (%s).*) as "vedur.row") as _one)',
            _a.when_expr, _row);
    end if;
    return format('select %s%s', array_to_string(_fields, E',\n    '), case
        when cardinality(_conditions) > 0 then E'\nwhere ' || array_to_string(_conditions, ' and ')
        else ''
    end);
end;
$$;
