create or replace function vedur.capture_nested(i_relid oid)
returns boolean
language sql
volatile
as $$
-- Tell whether a change may come from within a statement whose deletes are not logged yet.
--
-- Parameters: i_relid - the table that has the rows: the statistics of a partitioned table are empty.
-- Returns: true in a trigger within a trigger, where rows of the table were removed or their indexed columns changed.
-- Writes: nothing.
--
-- The numbers are those of the transaction, and of earlier ones that the statistics have not heard of yet: too
-- many are no harm.
    select pg_catalog.pg_trigger_depth() operator(pg_catalog.>) 1
        and (pg_catalog.pg_stat_get_xact_tuples_deleted(i_relid)
            operator(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_updated(i_relid))
            operator(pg_catalog.>) pg_catalog.pg_stat_get_xact_tuples_hot_updated(i_relid)
$$;
