create or replace function vedur.spread_rows(
    i_parent text,
    i_how jsonb)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Move the rows that are in a table itself to those that inherit from it, by the time in a column.
--
-- Parameters:
--     i_parent    the table, not quoted
--     i_how       as for vedur.make_partition; "field" is the column that decides
-- Returns: rows that were moved; 0 for a partitioned table, where the server does that
-- Writes: the partitions, and makes those that are missing
-- Raises: as vedur.partition_moment and vedur.make_partition
-- ----------------------------------------------------------------------
declare
    _parent text := londiste.quote_fqname(i_parent);
    _moment text := vedur.partition_moment(
        i_parent, i_how ->> 'field', format('t.%I', i_how ->> 'field'));
    _period text;
    _columns text;
    _own text;
    _part text;
    _moved bigint;
    _total bigint := 0;
    _at timestamp;
begin
    if londiste.find_rel_oid(i_parent, 'p') is not null then
        return 0;
    end if;
    _period := format('date_trunc(%L, %s)', i_how ->> 'period', _moment);
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum),
        string_agg('t.' || quote_ident(a.attname), ', ' order by a.attnum)
    into _columns, _own
    from pg_catalog.pg_attribute a
    where a.attrelid = londiste.find_table_oid(i_parent)
        and a.attnum > 0 and not a.attisdropped and a.attgenerated = '';
    for _at in execute format('select distinct %s from only %s as t order by 1', _period, _parent) loop
        _part := vedur.make_partition(i_parent, i_how, _at);
        if _part is null then
            execute format('delete from only %s as t where %s = %L', _parent, _period, _at);
            continue;
        end if;
        execute format(
            'with gone as (delete from only %1$s as t where %2$s = %3$L returning %4$s)'
            ' insert into %5$s (%6$s) overriding system value select %6$s from gone',
            _parent, _period, _at, _own, _part, _columns);
        get diagnostics _moved = row_count;
        _total := _total + _moved;
    end loop;
    return _total;
end;
$$;
