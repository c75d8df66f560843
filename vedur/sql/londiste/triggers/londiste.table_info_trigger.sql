create or replace function londiste.table_info_trigger()
returns trigger
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- A table leaves the registry, perhaps because the node is dropped: its triggers go first.
--
-- Returns: the old row, so the delete goes on.
-- Writes: triggers of the table.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
begin
    if old.local then
        perform londiste.drop_table_triggers(old.queue_name, old.table_name);
    end if;
    return old;
end;
$$;

do $$
-- Only where it is missing: to replace it locks the table against the worker, whatever it was before.
begin
    if not exists (
        select 1
        from pg_catalog.pg_trigger t
        where t.tgrelid = 'londiste.table_info'::regclass
            and t.tgname = 'table_info_trigger_sync'
    ) then
        create trigger table_info_trigger_sync
            before delete on londiste.table_info
            for each row
            execute function londiste.table_info_trigger();
    end if;
end
$$;
