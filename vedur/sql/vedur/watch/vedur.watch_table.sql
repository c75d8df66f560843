create or replace function vedur.watch_table(i_queue_name text, i_table_name text, i_relid oid)
returns void
language plpgsql
as $$
-- Begin to watch a table that joins the set of this node: what it is now is what later looks compare with.
--
-- Parameters: i_queue_name; i_table_name - name in the set; i_relid - the table, NULL for none.
-- Returns: nothing.
-- Writes: vedur.table_watch, vedur.table_change.
-- Errors: none of its own.
begin
    delete from vedur.table_change as c
    where c.queue_name = i_queue_name
        and c.table_name = i_table_name;
    delete from vedur.table_watch as w
    where w.queue_name = i_queue_name
        and w.table_name = i_table_name;
    insert into vedur.table_watch (queue_name, table_name, relid, state, captured)
    select i_queue_name, i_table_name, i_relid, s.state, vedur.has_capture(i_queue_name, i_relid)
    from vedur.table_state(i_queue_name, i_relid) as s (state)
    where s.state is not null;
end;
$$;
