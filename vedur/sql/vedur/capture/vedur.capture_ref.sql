create or replace function vedur.capture_ref(i_row text, i_column text)
returns text
language sql
immutable strict parallel safe
as $$
-- Write the reference to a column of a row, in SQL and in PL/pgSQL.
--
-- Parameters: i_row - how the statement refers to the row; i_column - the column's name.
-- Returns: the reference, always quoted: PL/pgSQL reserves words that SQL does not (new.by).
-- Writes: nothing.
    select i_row || '."' || replace(i_column, '"', '""') || '"'
$$;
