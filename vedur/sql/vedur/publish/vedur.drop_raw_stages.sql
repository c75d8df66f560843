create or replace function vedur.drop_raw_stages(i_queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Drops the raw staging tables of a queue, and those of queues and parts that are gone.
--
-- Parameters:
--     i_queue_name    queue; null: only of queues that are gone
-- Returns: how many were dropped
-- Writes: drops vedur_work.raw_<key>_<slot> (vedur.raw_stage_key)
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
        cross join lateral (select substring(c.relname from '^raw_([0-9]{1,9}|part_[0-9a-f]{32})_[0-9]+$')) as k (key)
        where c.relnamespace = 'vedur_work'::regnamespace
            and c.relkind = 'r'
            and r.rolname = current_user
            and k.key is not null
            and (
                k.key = vedur.raw_stage_key(i_queue_name)
                or not exists (
                    select 1
                    from (
                        select queue_name from pgq.queue
                        union
                        select queue_name from pgq_node.node_info
                    ) as o (queue_name)
                    where vedur.raw_stage_key(o.queue_name) = k.key))
        order by 1
    loop
        execute format('drop table %s', _stage.name);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
