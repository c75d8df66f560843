create or replace function vedur.guard_partitions(i_queue_name text, i_relid oid)
returns integer
language plpgsql
as $$
-- Put the truncate trigger on every partition of a replicated table that lacks it.
--
-- Parameters: i_queue_name; i_relid - the replicated table.
-- Returns: how many triggers were made.
-- Writes: triggers of the table and its partitions.
-- Errors: those of CREATE TRIGGER.
--
-- Of a long queue name, the two triggers of the table itself have the hash: PostgreSQL would cut both to one name. The
-- name of the third fits, or the table is not added (londiste.create_trigger).
declare
    _name text := '_londiste_' || i_queue_name;
    _both text := case when octet_length(_name || '_truncating') < 64 then _name else '_londiste_' || md5(i_queue_name) end;
    _part oid;
    _count integer := 0;
begin
    if not exists (
        select
        from pg_catalog.pg_trigger as t
            join pg_catalog.pg_class as c on c.oid = t.tgrelid and c.relkind = 'p'
        where t.tgrelid = i_relid
            and t.tgname = (_name || '_truncate')::name) then
        return 0;  -- not partitioned, or replicated without triggers
    end if;
    if not exists (
        select
        from pg_catalog.pg_trigger as t
        where t.tgrelid = i_relid
            and t.tgname = (_both || '_truncating')::name) then
        execute format(
            'create trigger %I before truncate on %s for each statement execute function vedur.truncate_partition(%L, ''parent'')',
            _both || '_truncating', i_relid::regclass, i_queue_name);
        execute format(
            'create trigger %I after truncate on %s for each statement execute function vedur.truncate_partition(%L, ''parent'')',
            _both || '_truncated', i_relid::regclass, i_queue_name);
    end if;
    for _part in
        select l.relid
        from vedur.leaf_partitions(i_relid) as l
        where not exists (
            select
            from pg_catalog.pg_trigger as t
            where t.tgrelid = l.relid
                and t.tgname = (_name || '_truncate')::name)
    loop
        execute format(
            'create trigger %I before truncate on %s for each statement execute function vedur.truncate_partition(%L)',
            _name || '_truncate', _part::regclass, i_queue_name);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
