create or replace function vedur.capture_fragment(
    i_relid oid,
    i_op text,
    i_new text,
    i_old text,
    i_pkey text[],
    i_ignored text[])
returns text
language plpgsql
stable
as $$
-- Write the SQL expression that gives the statement fragment of an sqltriga event.
--
-- Parameters: i_relid - the table; i_op - INSERT, UPDATE or DELETE; i_new, i_old - how the statement
--     refers to the rows; i_pkey - key columns; i_ignored - columns to leave out.
-- Returns: the expression. An update that changes nothing sets the first key column to itself.
-- Writes: nothing.
declare
    _names text;
    _values text;
    _sets text;
    _nop text;
    _where text;
begin
    select
        string_agg(format('%I', c.col_name), ',' order by c.col_nr) filter (where c.sent),
        string_agg(
            format('coalesce(pg_catalog.quote_literal(%s), ''null'')', c.new_text),
            ' || '','' || ' order by c.col_nr) filter (where c.sent),
        string_agg(
            format(
                'case when %s then %L || pg_catalog.quote_nullable(%s) end',
                vedur.capture_differs(i_new, i_old, array[c.col_name]), quote_ident(c.col_name) || '=', c.new_text),
            ', ' order by c.col_nr) filter (where c.sent),
        (array_agg(
            format('%L || pg_catalog.quote_nullable(%s)', quote_ident(c.col_name) || '=', c.new_text)
            order by c.col_nr) filter (where c.is_key))[1],
        string_agg(
            format('%L || vedur.capture_key_literal(%s)', quote_ident(c.col_name) || '=', c.old_text),
            ' || '' and '' || ' order by c.col_nr) filter (where c.is_key)
    into _names, _values, _sets, _nop, _where
    from (
        select
            v.col_nr,
            v.col_name,
            v.magic is null and v.col_name <> all (i_ignored) as sent,
            v.col_name = any (i_pkey) as is_key,
            vedur.capture_value(v.col_type, vedur.capture_ref(i_new, v.col_name), 'text') as new_text,
            vedur.capture_value(v.col_type, vedur.capture_ref(i_old, v.col_name), 'text') as old_text
        from vedur.capture_columns(i_relid) as v
    ) as c;

    return case i_op
        when 'INSERT' then format(
            '%L || %s || %L', '(' || coalesce(_names, '') || ') values (', coalesce(_values, ''''''), ')')
        when 'UPDATE' then format(
            'coalesce(nullif(pg_catalog.array_to_string(array[%s]::pg_catalog.text[], '',''), ''''), %s)'
                ' || '' where '' || %s',
            coalesce(_sets, ''), coalesce(_nop, ''''''), coalesce(_where, ''''''))
        else coalesce(_where, '''''')
    end;
end;
$$;
