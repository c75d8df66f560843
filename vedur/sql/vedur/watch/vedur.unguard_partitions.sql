create or replace function vedur.unguard_partitions(i_queue_name text, i_relid oid)
returns integer
language plpgsql
as $$
-- Take away the truncate triggers that vedur.guard_partitions made.
--
-- Parameters: i_queue_name; i_relid - the replicated table.
-- Returns: how many triggers were dropped.
-- Writes: triggers of the table and its partitions.
-- Errors: those of DROP TRIGGER.
declare
    _tg record;
    _count integer := 0;
begin
    for _tg in
        select t.tgname, t.tgrelid::regclass as rel
        from pg_catalog.pg_trigger as t
        where t.tgfoid = 'vedur.truncate_partition()'::regprocedure
            and (vedur.trigger_arguments(t.tgargs))[1] = i_queue_name
            and (t.tgrelid = i_relid or t.tgrelid in (select l.relid from vedur.leaf_partitions(i_relid) as l))
    loop
        execute format('drop trigger %I on %s', _tg.tgname, _tg.rel);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
