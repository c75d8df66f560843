create or replace function vedur.capture_key_deferred(i_relid oid, i_keys text[])
returns boolean
language sql
stable
as $$
-- Tell whether two rows of a table can have the same key for a while.
--
-- Parameters: i_relid - the table; i_keys - the key columns that events carry.
-- Returns: true when every unique index that keeps these columns unique belongs to a DEFERRABLE constraint,
--     which is checked at the end of the statement or of the transaction; false without such an index.
-- Writes: nothing.
    select coalesce(bool_and(not i.indimmediate), false)
    from pg_catalog.pg_index as i
    where i.indrelid = i_relid
        and i.indisunique
        and i.indpred is null
        and i.indexprs is null
        and (
            select array_agg(a.attname::text)
            from unnest(i.indkey::int2[]) with ordinality as k (attnum, n)
                join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
            where k.n <= i.indnkeyatts) <@ i_keys
$$;
