create or replace function vedur.capture_key(i_relid oid, i_pkey text)
returns text[]
language sql
stable
as $$
-- Name the key columns that events of a table carry.
--
-- Parameters: i_relid - the table; i_pkey - comma list given by pkey=, or NULL for the primary key.
-- Returns: the names in the order of the list or of the primary key; an empty array if there are none.
-- Writes: nothing.
    select coalesce(
        case
            when i_pkey is null then (
                select array_agg(a.attname::text order by k.n)
                from pg_catalog.pg_index as i
                    cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, n)
                    join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
                where i.indrelid = i_relid
                    and i.indisprimary
                    and k.n <= i.indnkeyatts)
            else (
                select array_agg(btrim(u.name) order by u.n)
                from unnest(string_to_array(i_pkey, ',')) with ordinality as u (name, n)
                where btrim(u.name) <> '')
        end, '{}')
$$;
