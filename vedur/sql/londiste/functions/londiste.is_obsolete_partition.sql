create or replace function londiste.is_obsolete_partition(
    i_partition_table text,
    i_retention_period interval,
    i_partition_period text)
returns boolean
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Tell by its name whether a partition is older than the time to keep.
--
-- Parameters: i_partition_table - name that ends in _YYYY, _YYYY_MM, _YYYY_MM_DD or
--             _YYYY_MM_DD_HH24; i_retention_period - time to keep; i_partition_period - year,
--             month, day or hour.
-- Returns: true when its last moment is too old; NULL when the name does not fit the period.
-- Writes: nothing.
-- Raises: "not supported i_partition_period".
-- ----------------------------------------------------------------------
declare
    _pattern text;
    _format text;
    _stamp text;
begin
    if i_partition_period like '%hour' then
        _pattern := '_([0-9]{4}_[0-9]{2}_[0-9]{2}_[0-9]{2})$';
        _format := 'YYYY_MM_DD_HH24';
    elsif i_partition_period like '%day' then
        _pattern := '_([0-9]{4}_[0-9]{2}_[0-9]{2})$';
        _format := 'YYYY_MM_DD';
    elsif i_partition_period like '%month' then
        _pattern := '_([0-9]{4}_[0-9]{2})$';
        _format := 'YYYY_MM';
    elsif i_partition_period like '%year' then
        _pattern := '_([0-9]{4})$';
        _format := 'YYYY';
    else
        raise exception 'not supported i_partition_period: %', i_partition_period;
    end if;

    _stamp := substring(i_partition_table from _pattern);
    if _stamp is null then
        return null;
    end if;
    return to_timestamp(_stamp, _format)
            + case when i_partition_period ~ '^[0-9]' then i_partition_period
                else '1 ' || i_partition_period end::interval
        <= now() - i_retention_period;
end;
$$;
