create or replace function vedur.urldecode(
    i_text text)
returns text
language sql
immutable
strict
as $$
-- ----------------------------------------------------------------------
-- Undo the encoding of a name or value in an urlencoded row: vedur.urlencode the other way round.
--
-- Parameters:
--     i_text      the text; a percent sign without two digits behind it stands for itself
-- Returns: the text that was encoded
-- Writes: nothing
-- Raises: for bytes that are not UTF-8
-- ----------------------------------------------------------------------
select coalesce(pg_catalog.convert_from(
    pg_catalog.string_agg(
        case
            when m.part[1] is not null then pg_catalog.decode(m.part[1], 'hex')
            else pg_catalog.convert_to(m.part[2], 'UTF8')
        end, ''::bytea order by m.nr), 'UTF8'), '')
from pg_catalog.regexp_matches(
    pg_catalog.replace(i_text, '+', ' '), '%([0-9A-Fa-f]{2})|([^%]+|%)', 'g') with ordinality as m (part, nr);
$$;
