create or replace function vedur.trigger_arguments(i_args bytea)
returns text[]
language sql
stable
as $$
-- Read the arguments of a trigger from the catalog.
--
-- Parameters: i_args - pg_trigger.tgargs: texts, each ended by a zero byte.
-- Returns: the texts in their order.
-- Writes: nothing.
    select coalesce(pg_catalog.array_agg(
        pg_catalog.convert_from(pg_catalog.decode(pg_catalog.replace(a.hex, ' ', ''), 'hex'), pg_catalog.getdatabaseencoding())
        order by a.nr), '{}')
    from (
        select u.hex, u.nr, pg_catalog.count(*) over () as last
        from pg_catalog.unnest(pg_catalog.string_to_array(
            pg_catalog.regexp_replace(pg_catalog.encode(i_args, 'hex'), '(..)', E'\\1 ', 'g'), '00 ')) with ordinality as u (hex, nr)
    ) as a
    where a.nr < a.last
$$;
