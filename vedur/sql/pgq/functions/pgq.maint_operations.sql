create or replace function pgq.maint_operations(out func_name text, out func_arg text)
returns setof record
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Lists the maintenance that is due. The caller runs each line in a transaction of its own, in this order:
-- "vacuum" means VACUUM of the table in func_arg; everything else is a function, with func_arg as argument unless null.
--
-- Parameters: none
-- Returns: func_name, func_arg
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    func_name := 'pgq.maint_rotate_tables_step1';
    for func_arg in
        select q.queue_name
        from pgq.queue q
        where q.queue_switch_step2 is not null
            and q.queue_switch_time + q.queue_rotation_period < now()
        order by q.queue_name
    loop
        return next;
    end loop;

    -- After a step 1 of this list, or one that was interrupted.
    func_name := 'pgq.maint_rotate_tables_step2';
    func_arg := null;
    if exists (
        select 1
        from pgq.queue q
        where q.queue_switch_step2 is null
            or q.queue_switch_time + q.queue_rotation_period < now())
    then
        return next;
    end if;

    func_name := 'vacuum';
    for func_arg in
        select t.name from pgq.maint_tables_to_vacuum() as t (name)
    loop
        return next;
    end loop;

    for func_name, func_arg in
        select m.name, q.queue_name
        from pgq.queue q
        cross join lateral unnest(q.queue_extra_maint) with ordinality as m (name, nr)
        order by q.queue_name, m.nr
    loop
        return next;
    end loop;

    -- Schemas above this one, where they are installed.
    if to_regprocedure('pgq_node.maint_watermark(text)') is not null then
        func_name := 'pgq_node.maint_watermark';
        for func_arg in
            execute 'select queue_name from pgq_node.node_info where node_type in (''root'', ''branch'') order by 1'
        loop
            return next;
        end loop;
    end if;
    if to_regprocedure('londiste.root_check_seqs(text)') is not null then
        func_name := 'londiste.root_check_seqs';
        for func_arg in
            execute 'select distinct s.queue_name'
                ' from londiste.seq_info s'
                ' join pgq_node.node_info n on n.queue_name = s.queue_name'
                ' where s.local and n.node_type = ''root'''
                ' order by 1'
        loop
            return next;
        end loop;
    end if;
    if to_regprocedure('londiste.periodic_maintenance()') is not null then
        func_name := 'londiste.periodic_maintenance';
        func_arg := null;
        return next;
    end if;
end;
$$;
