create or replace function vedur.is_literal(i_expr text)
returns boolean
language sql
immutable
as $$
-- Tell whether an expression is a text constant, which needs nobody's rights and reads the same everywhere.
--
-- Parameters: i_expr - SQL text.
-- Returns: true for a text in single quotes without a backslash; NULL for NULL.
-- Writes: nothing.
    select i_expr operator(pg_catalog.~) E'^''([^''\\\\]|'''')*''$'
$$;
