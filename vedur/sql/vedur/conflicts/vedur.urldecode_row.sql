create or replace function vedur.urldecode_row(
    i_text text)
returns jsonb
language sql
immutable
as $$
-- ----------------------------------------------------------------------
-- Read an urlencoded row, as events and configurations have it.
--
-- Parameters:
--     i_text      name=value&name2=value2; a name without a value is NULL
-- Returns: an object of text by name, empty for an empty text or NULL
-- Writes: nothing
-- Raises: as vedur.urldecode
-- ----------------------------------------------------------------------
select coalesce(
    pg_catalog.jsonb_object_agg(
        vedur.urldecode(pg_catalog.split_part(p.part, '=', 1)),
        case when pg_catalog.strpos(p.part, '=') > 0
            then vedur.urldecode(pg_catalog.substr(p.part, pg_catalog.strpos(p.part, '=') + 1))
        end), '{}')
from pg_catalog.unnest(pg_catalog.string_to_array(i_text, '&')) as p (part)
where p.part <> '';
$$;
