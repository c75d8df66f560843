create or replace function londiste.drop_partition_triggers(i_queue_name text, i_table oid)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Remove the truncate triggers of a replicated table's partitions, where Vedur has made some.
--
-- Parameters: i_queue_name - cascaded queue; i_table - the replicated table.
-- Returns: nothing.
-- Writes: triggers, through vedur.unguard_partitions.
-- Raises: errors of DROP TRIGGER.
-- ----------------------------------------------------------------------
begin
    if to_regprocedure('vedur.unguard_partitions(text,oid)') is not null then
        execute 'select vedur.unguard_partitions($1, $2)'
        using i_queue_name, i_table;
    end if;
end;
$$;
