create or replace function vedur.partition_moment(
    i_parent text,
    i_field text,
    i_alias text)
returns text
language plpgsql
stable
as $$
-- ----------------------------------------------------------------------
-- Write the expression that tells the time of a row, as a clock on the wall shows it.
--
-- Parameters:
--     i_parent    the table, not quoted
--     i_field     its column that decides
--     i_alias     an expression for that column, as SQL
-- Returns: an expression of type timestamp
-- Writes: nothing
-- Raises: undefined_column; datatype_mismatch for a column that is no time
-- ----------------------------------------------------------------------
declare
    _type regtype;
begin
    select a.atttypid into _type
    from pg_catalog.pg_attribute a
    where a.attrelid = londiste.find_table_oid(i_parent)
        and a.attname = i_field and a.attnum > 0 and not a.attisdropped;
    if not found then
        raise exception 'table "%" has no column "%", which decides on the partition', i_parent, i_field
            using errcode = 'undefined_column';
    elsif _type = 'timestamptz'::regtype then
        return format('(%s at time zone %L)', i_alias, vedur.partition_zone());
    elsif _type in ('timestamp'::regtype, 'date'::regtype) then
        return format('cast(%s as timestamp)', i_alias);
    end if;
    raise exception 'column "%" of table "%" is of type %, and a partition is chosen by a date or a timestamp',
        i_field, i_parent, _type
        using errcode = 'datatype_mismatch';
end;
$$;
