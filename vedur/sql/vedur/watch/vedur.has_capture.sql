create or replace function vedur.has_capture(i_queue_name text, i_relid oid)
returns boolean
language sql
stable
as $$
-- Tell whether a table has the row trigger of a queue.
--
-- Parameters: i_queue_name; i_relid - the table.
-- Returns: true if there is one.
-- Writes: nothing.
    select exists (
        select
        from pg_catalog.pg_trigger as t
        where t.tgrelid = i_relid
            and t.tgtype & 1 > 0
            and t.tgname in (('_londiste_' || i_queue_name)::name, ('zzz__londiste_' || i_queue_name)::name))
$$;
