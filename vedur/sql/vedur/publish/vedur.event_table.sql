create or replace function vedur.event_table(i_type text, i_extra1 text)
returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Reads which table of the set an event of a row is about.
--
-- Parameters:
--     i_type      ev_type
--     i_extra1    ev_extra1: the table, but a JSON type may tell it instead
-- Returns: its name; null for an event that tells none
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    if i_type = 'EXECUTE' then
        return null;
    end if;
    if i_extra1 <> '' or i_type not like '{%' then
        return nullif(i_extra1, '');
    end if;
    return (
        select string_agg(p.part, '.' order by p.nr)
        from jsonb_array_elements_text(i_type::jsonb -> 'table') with ordinality as p (part, nr));
exception
    when data_exception or program_limit_exceeded then
        return null;  -- no trigger writes such a type, and no node applies it
end;
$$;
