create or replace function vedur.columns_equal(
    i_one text,
    i_other text,
    i_columns text[])
returns text
language sql
immutable
as $$
-- ----------------------------------------------------------------------
-- Write the condition that two rows have the same values in some columns.
--
-- Parameters:
--     i_one, i_other  how the statement refers to the rows
--     i_columns       the columns
-- Returns: a condition in brackets
-- Writes: nothing
-- ----------------------------------------------------------------------
select '(' || pg_catalog.string_agg(
    pg_catalog.format('%1$s.%3$I = %2$s.%3$I', i_one, i_other, c.name), ' and ' order by c.nr) || ')'
from pg_catalog.unnest(i_columns) with ordinality as c (name, nr);
$$;
