create or replace function vedur.capture_key_changed(
    i_relid oid,
    i_pkey text,
    i_new text,
    i_old text)
returns text
language sql
stable
as $$
-- Write the SQL condition that tells whether an update changes the key of a row.
--
-- Parameters: i_relid - the table; i_pkey - comma list given by pkey=, or NULL; i_new, i_old - how the
--     statement refers to the rows.
-- Returns: the condition; "false" when no key column exists.
-- Writes: nothing.
--
-- Where equal means identical a plain comparison does; elsewhere (1.0 and 1.00, case-insensitive
-- text) the images are compared, so that a change of representation reaches the subscribers too.
    select coalesce(string_agg(
        case
            when i_pkey is null and c.col_type in (
                'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype, 'date'::regtype,
                'timestamp'::regtype, 'timestamptz'::regtype) then
                format(
                    '%s operator(pg_catalog.<>) %s', vedur.capture_ref(i_new, c.col_name),
                    vedur.capture_ref(i_old, c.col_name))
            else vedur.capture_differs(i_new, i_old, array[c.col_name])
        end, ' or ' order by c.col_nr), 'false')
    from vedur.capture_columns(i_relid) as c
    where c.col_name = any (vedur.capture_key(i_relid, i_pkey))
$$;
