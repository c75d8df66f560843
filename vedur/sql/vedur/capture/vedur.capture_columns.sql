create or replace function vedur.capture_columns(
    i_relid oid,
    out col_nr int,
    out col_name text,
    out col_type oid,
    out magic text)
returns setof record
language sql
stable
as $$
-- List the columns of a table that a capture trigger can see.
--
-- Parameters: i_relid - the table.
-- Returns: one row per live column in table order; virtual generated columns are left out, since they
--     have no value in a trigger. magic is the event field that a column _pgq_ev_* overrides, else NULL.
-- Writes: nothing.
    select
        a.attnum::int,
        a.attname::text,
        a.atttypid,
        case
            when a.attname ~ '^_pgq_ev_(type|data|extra[1-4])$' then substr(a.attname::text, 6)
        end
    from pg_catalog.pg_attribute as a
    where a.attrelid = i_relid
        and a.attnum > 0
        and not a.attisdropped
        and a.attgenerated <> 'v'
    order by a.attnum
$$;
