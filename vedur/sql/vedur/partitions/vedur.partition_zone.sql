create or replace function vedur.partition_zone()
returns text
language sql
stable
as $$
-- ----------------------------------------------------------------------
-- Tell the time zone that partitions are cut by: the one that new sessions of the role have here.
--
-- Parameters: none
-- Returns: name of the zone; not what this session has set for itself
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
    select s.reset_val from pg_catalog.pg_settings s where s.name = 'TimeZone';
$$;
