create or replace function londiste.global_add_table(
    in i_queue_name text,
    in i_table_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Note that the set has a table; nothing is copied.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - table.
-- Returns: 200 noted, or known already; 400 no such queue.
-- Writes: londiste.table_info, also for the combined queue of a part.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_table_name);
    _combined text;
    _new boolean := false;
begin
    -- The node must not go meanwhile; a stronger lock would make this wait in the worker's batch
    -- (order of locks: docs/design/first-copy.md).
    select n.combined_queue
    into _combined
    from pgq_node.node_info n
    where n.queue_name = i_queue_name
    for key share;
    if not found then
        ret_code := 400;
        ret_note := 'No such queue: ' || i_queue_name;
        return;
    end if;

    -- An insert would wait for a transaction that changes the row just now, such as the end of a first copy.
    if not exists (
        select 1
        from londiste.table_info t
        where t.queue_name = i_queue_name
            and t.table_name = _name
    ) then
        insert into londiste.table_info (queue_name, table_name)
        values (i_queue_name, _name)
        on conflict do nothing;
        _new := found;
    end if;
    ret_code := 200;
    ret_note := case when _new then 'Table added: ' else 'Table already added: ' end || _name;

    if _combined is not null then
        insert into londiste.table_info (queue_name, table_name)
        select n.queue_name, _name
        from pgq_node.node_info n
        where n.queue_name = _combined
            and not exists (
                select 1
                from londiste.table_info t
                where t.queue_name = _combined
                    and t.table_name = _name)
        on conflict do nothing;
    end if;
end;
$$;
