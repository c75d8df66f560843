create or replace function vedur.capture_differs(i_new text, i_old text, i_columns text[])
returns text
language sql
stable
as $$
-- Write the SQL condition that tells whether any of some columns differs between two rows.
--
-- Parameters: i_new, i_old - how the statement refers to the rows; i_columns - the columns.
-- Returns: the condition, which compares stored images and so knows every type; NULL without columns.
-- Writes: nothing.
    select format(
        'pg_catalog.record_image_ne(row(%s), row(%s))',
        string_agg(vedur.capture_ref(i_new, c), ', '),
        string_agg(vedur.capture_ref(i_old, c), ', '))
    from unnest(i_columns) as c
    having count(*) > 0
$$;
