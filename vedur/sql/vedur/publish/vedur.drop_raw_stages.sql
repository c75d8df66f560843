create or replace function vedur.drop_raw_stages(i_queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Drops the raw staging tables of a queue, and those of queues that are gone.
--
-- Parameters:
--     i_queue_name    queue; null: only of queues that are gone
-- Returns: how many were dropped
-- Writes: drops vedur_work.raw_<queue_id>_<slot>
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _stage record;
    _count integer := 0;
begin
    for _stage in
        select c.oid::regclass as name
        from pg_class c
        join pg_roles r on r.oid = c.relowner
        left join pgq.queue q on q.queue_id = substring(c.relname from '^raw_([0-9]{1,9})_[0-9]+$')::integer
        where c.relnamespace = 'vedur_work'::regnamespace
            and c.relkind = 'r'
            and r.rolname = current_user
            and c.relname ~ '^raw_[0-9]{1,9}_[0-9]+$'
            and (q.queue_id is null or q.queue_name = i_queue_name)
        order by 1
    loop
        execute format('drop table %s', _stage.name);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
