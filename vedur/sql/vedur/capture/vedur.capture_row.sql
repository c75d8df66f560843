create or replace function vedur.capture_row(
    i_relid oid,
    i_ref text,
    i_format text,
    i_ignored text[])
returns text
language plpgsql
stable
as $$
-- Write the SQL expression that turns a whole row into the text of an event.
--
-- Parameters: i_relid - the table; i_ref - how the statement refers to the row; i_format - "urlenc"
--     or "json"; i_ignored - columns to leave out.
-- Returns: the expression; it never gives NULL.
-- Writes: nothing.
declare
    _plain boolean;
    _list text;
begin
    if i_format = 'urlenc' then
        select string_agg(
            format(
                '%L operator(pg_catalog.||) coalesce(''='' operator(pg_catalog.||) %s, '''')',
                case when c.nr > 1 then '&' else '' end || vedur.urlencode(c.col_name),
                vedur.capture_value(c.col_type, vedur.capture_ref(i_ref, c.col_name), 'urlenc')),
            ' operator(pg_catalog.||) ' order by c.nr)
        into _list
        from (
            select v.*, row_number() over (order by v.col_nr) as nr
            from vedur.capture_columns(i_relid) as v
            where v.magic is null
                and v.col_name <> all (i_ignored)
        ) as c;
        return coalesce(_list, quote_literal(''));
    end if;

    -- Whole rows of plain types need no rewriting: row_to_json writes them as upstream does.
    select
        bool_and(c.magic is null
            and c.col_name <> all (i_ignored)
            and vedur.capture_value(c.col_type, 'x', 'json') = 'x')
            and not exists (
                select from pg_catalog.pg_attribute as a
                where a.attrelid = i_relid
                    and a.attgenerated = 'v'),
        string_agg(
            format(
                '%s as %I',
                vedur.capture_value(c.col_type, vedur.capture_ref(i_ref, c.col_name), 'json'),
                c.col_name),
            ', ' order by c.col_nr)
            filter (where c.magic is null and c.col_name <> all (i_ignored))
    into _plain, _list
    from vedur.capture_columns(i_relid) as c;

    return case
        when _list is null then quote_literal('{}')
        when _plain then format('pg_catalog.row_to_json(%s)::pg_catalog.text', i_ref)
        else format(
            '(select pg_catalog.row_to_json("vedur.row".*)::pg_catalog.text from (select %s) as "vedur.row")', _list)
    end;
end;
$$;
