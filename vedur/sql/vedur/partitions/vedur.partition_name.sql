create or replace function vedur.partition_name(
    i_parent text,
    i_how jsonb,
    i_moment timestamp)
returns text
language plpgsql
immutable
as $$
-- ----------------------------------------------------------------------
-- Name the partition that a moment belongs to.
--
-- Parameters:
--     i_parent    the table, not quoted
--     i_how       what the handler says; here "name", with %(parent)s, %(year)s, %(month)s, %(day)s, %(hour)s
--     i_moment    a moment inside, as a clock on the wall shows it
-- Returns: the name with its schema, not quoted
-- Writes: nothing
-- Raises: datetime_field_overflow for a moment that no partition has; name_too_long for a name that the
--         server would cut, since two partitions could then be one table
-- ----------------------------------------------------------------------
declare
    _name text := i_how ->> 'name';
begin
    if i_moment is null or not pg_catalog.isfinite(i_moment) then
        raise exception 'no partition of table "%" is for the time "%"', i_parent,
            coalesce(i_moment::text, 'NULL')
            using errcode = 'datetime_field_overflow',
                hint = 'The column that decides must have a time in every row.';
    end if;
    _name := replace(_name, '%(year)s', to_char(i_moment, 'YYYY'));
    _name := replace(_name, '%(month)s', to_char(i_moment, 'MM'));
    _name := replace(_name, '%(day)s', to_char(i_moment, 'DD'));
    _name := replace(_name, '%(hour)s', to_char(i_moment, 'HH24'));
    _name := londiste.make_fqname(replace(_name, '%(parent)s', i_parent));
    if octet_length((londiste.split_fqname(_name)).name_part) > 63 then
        raise exception 'partition name "%" is longer than 63 bytes', _name
            using errcode = 'name_too_long', hint = 'Give a shorter part_name.';
    end if;
    return _name;
end;
$$;
