create or replace function vedur.capture_same(
    i_relid oid,
    i_keys text[],
    i_left text,
    i_right text)
returns text
language sql
stable
as $$
-- Write the SQL condition that tells whether two rows have the same key.
--
-- Parameters: i_relid - the table; i_keys - its key columns; i_left, i_right - how the statement refers
--     to the rows.
-- Returns: the condition, by the equality of the columns' types; NULL when a key column does not exist.
-- Writes: nothing.
    select string_agg(
        format(
            '%s operator(%I.=) %s', vedur.capture_ref(i_left, c.col_name), coalesce((
                select n.nspname
                from pg_catalog.pg_operator as o
                    join pg_catalog.pg_namespace as n on n.oid = o.oprnamespace
                where o.oprname = '='
                    and o.oprleft = c.col_type
                    and o.oprright = c.col_type
                    and o.oprresult = 'pg_catalog.bool'::pg_catalog.regtype
                order by n.nspname <> 'pg_catalog', o.oid
                limit 1), 'pg_catalog'),
            vedur.capture_ref(i_right, c.col_name)),
        ' and ' order by c.col_nr)
    from vedur.capture_columns(i_relid) as c
    where c.col_name = any (i_keys)
    having count(*) = cardinality(i_keys)
$$;
