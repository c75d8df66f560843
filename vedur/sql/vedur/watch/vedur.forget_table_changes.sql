create or replace function vedur.forget_table_changes(i_queue_name text, i_table_name text default null)
returns integer
language sql
as $$
-- Dismiss changes of tables that status and doctor tell about: they are dealt with.
--
-- Parameters: i_queue_name; i_table_name - name in the set, NULL for all tables.
-- Returns: how many were dismissed.
-- Writes: vedur.table_change.
    with gone as (
        delete from vedur.table_change as c
        where c.queue_name = i_queue_name
            and (i_table_name is null or c.table_name = londiste.make_fqname(i_table_name))
        returning 1
    )
    select count(*)::integer from gone
$$;
