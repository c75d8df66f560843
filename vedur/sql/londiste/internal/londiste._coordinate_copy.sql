create or replace function londiste._coordinate_copy(
    in i_queue_name text,
    in i_table_name text,
    out copy_role text,
    out copy_pos integer)
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- When several queues are merged into one table: what the copy of this queue's part may do.
--
-- lead         drop indexes, copy, and create them again when all parts are copied
-- wait-copy    the lead has not dropped the indexes yet, do not copy
-- wait-replay  copy, but do not replay events before the indexes are there
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - name in the set.
-- Returns: role, NULL when there is nobody to wait for; position among the parts that are
--          being copied, 0 first.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _me record;
    _all record;
begin
    copy_pos := 0;

    select t.local, t.merge_state, t.dropped_ddl is not null as has_ddl,
        coalesce(t.dest_table, t.table_name) as dest, n.node_type, n.combined_queue
    into _me
    from londiste.table_info t
        join pgq_node.node_info n on n.queue_name = t.queue_name
    where t.queue_name = i_queue_name
        and t.table_name = i_table_name;
    if not found or not _me.local or _me.node_type <> 'leaf'
        or coalesce(_me.merge_state, '') not in ('in-copy', 'catching-up')
    then
        return;
    end if;

    select
        count(*) filter (where p.merge_state is distinct from 'ok') as not_ok,
        count(*) filter (where p.merge_state is null or p.merge_state = 'in-copy') as not_copied,
        count(*) filter (
            where p.merge_state = 'catching-up' or p.merge_state like '%-sync:%') as copied,
        count(*) filter (
            where p.merge_state = 'in-copy' and p.queue_name < i_queue_name) as copying_before,
        min(p.queue_name) filter (where p.has_ddl) as first_ddl,
        min(p.queue_name) filter (where p.merge_state is distinct from 'ok') as first_not_ok
    into _all
    from (
        select t.queue_name collate "C" as queue_name, t.merge_state,
            t.dropped_ddl is not null as has_ddl
        from londiste.table_info t
            join pgq_node.node_info n on n.queue_name = t.queue_name
        where t.local
            and n.node_type = 'leaf'
            and n.combined_queue is not distinct from _me.combined_queue
            and coalesce(t.dest_table, t.table_name) = _me.dest
    ) p;

    if _me.merge_state = 'catching-up' then
        if _all.first_ddl is not null and _all.not_ok > 1
            and (_all.first_ddl <> i_queue_name or _all.not_copied > 0)
        then
            copy_role := 'wait-replay';
        end if;
        return;
    end if;

    copy_pos := _all.copying_before;
    if _all.not_ok < 2 then
        copy_role := null;
    elsif coalesce(_all.first_ddl, case when _all.copied = 0 then _all.first_not_ok end)
        = i_queue_name
    then
        copy_role := 'lead';
        copy_pos := 0;
    elsif _all.first_ddl is not null or _all.copied > 0 then
        copy_role := 'wait-replay';
    else
        copy_role := 'wait-copy';
    end if;
end;
$$;
