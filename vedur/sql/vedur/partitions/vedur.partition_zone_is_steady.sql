create or replace function vedur.partition_zone_is_steady()
returns boolean
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Tell whether each hour of the zone that partitions are cut by comes once.
--
-- Parameters: none
-- Returns: false for a zone whose clocks are changed, or were since 1970
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
    select count(distinct (m at time zone vedur.partition_zone()) - (m at time zone 'UTC')) = 1
    from generate_series(timestamptz '1970-01-01 00:00+00', timestamptz '2037-01-01 00:00+00', interval '30 days') m;
$$;
