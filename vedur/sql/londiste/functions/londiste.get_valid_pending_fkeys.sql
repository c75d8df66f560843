create or replace function londiste.get_valid_pending_fkeys(i_queue_name text)
returns setof londiste.pending_fkeys
language plpgsql
stable
strict
as $$
-- ----------------------------------------------------------------------
-- List foreign keys that this queue's worker can bring back now.
--
-- Both tables must be in sync in every queue that writes them on this node; a table that is
-- not replicated is always in sync, so keys from and to such tables come back as well.
-- Of several queues one does the work: the first leaf that is merged into a root, else the branch
-- that leaves are merged into, else leaf before others, then the first by name.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: rows of londiste.pending_fkeys, perhaps none.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select p.*
        from londiste.pending_fkeys p,
            lateral (
                select bool_and(t.merge_state is not distinct from 'ok'
                        and t.custom_snapshot is null) as in_sync,
                    coalesce(
                        min(t.queue_name collate "C") filter (where c.node_type = 'root'),
                        min(c.queue_name collate "C") filter (where c.node_type = 'branch'),
                        (array_agg(
                            t.queue_name
                            order by n.node_type = 'leaf' desc, t.queue_name collate "C"))[1]
                    ) as owner
                from londiste.table_info t
                    join pgq_node.node_info n on n.queue_name = t.queue_name
                    left join pgq_node.node_info c on c.queue_name = n.combined_queue
                where t.local
                    and coalesce(t.dest_table, t.table_name) in (p.from_table, p.to_table)
            ) s
        where s.in_sync
            and s.owner = i_queue_name
        order by p.from_table, p.fkey_name;
end;
$$;
