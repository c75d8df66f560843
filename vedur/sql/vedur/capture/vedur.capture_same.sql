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
--
-- Only a superuser makes operator classes: an operator that anybody has made for the type is not taken.
    select string_agg(
        format(
            '%s operator(%I.=) %s', vedur.capture_ref(i_left, c.col_name), coalesce((
                select n.nspname
                from pg_catalog.pg_type as t
                    join pg_catalog.pg_opclass as k on k.opcintype = coalesce(nullif(t.typbasetype, 0), t.oid) and k.opcdefault
                    join pg_catalog.pg_am as m on m.oid = k.opcmethod and m.amname = 'btree'
                    join pg_catalog.pg_amop as a on a.amopfamily = k.opcfamily
                        and a.amopstrategy = 3
                        and a.amoplefttype = k.opcintype
                        and a.amoprighttype = k.opcintype
                    join pg_catalog.pg_operator as o on o.oid = a.amopopr and o.oprname = '='
                    join pg_catalog.pg_namespace as n on n.oid = o.oprnamespace
                where t.oid = c.col_type
                limit 1), 'pg_catalog'),
            vedur.capture_ref(i_right, c.col_name)),
        ' and ' order by c.col_nr)
    from vedur.capture_columns(i_relid) as c
    where c.col_name = any (i_keys)
    having count(*) = cardinality(i_keys)
$$;
