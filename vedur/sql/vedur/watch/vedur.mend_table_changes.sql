create or replace function vedur.mend_table_changes(
    i_queue_name text,
    i_table_name text,
    i_node_name text,
    i_provider text,
    i_last_change bigint)
returns integer
language plpgsql
as $$
-- A node has repaired a table: the changes that were known when it began are repaired there.
--
-- Parameters: i_queue_name; i_table_name - name in the set; i_node_name - the repaired node; i_provider - the node
--     that it was compared with; i_last_change - the newest change that was known before the repair.
-- Returns: how many changes are repaired on every node now, and removed.
-- Writes: vedur.table_change.
-- Errors: none of its own.
declare
    _gone integer;
begin
    update vedur.table_change as c
    set pending = array_remove(c.pending, i_node_name)
    where c.queue_name = i_queue_name
        and c.table_name = i_table_name
        and c.severity = 'fail'
        and c.change_id <= i_last_change
        -- equal to a node that is wrong itself is not repaired
        and i_provider <> all (c.pending);
    delete from vedur.table_change as c
    where c.queue_name = i_queue_name
        and c.table_name = i_table_name
        and c.severity = 'fail'
        and c.pending = '{}';
    get diagnostics _gone = row_count;
    return _gone;
end;
$$;
