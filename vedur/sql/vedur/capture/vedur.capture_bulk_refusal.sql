create or replace function vedur.capture_bulk_refusal(i_relid oid, i_trigger_name text)
returns text
language plpgsql
stable
as $$
-- Tell why a table cannot have bulk capture.
--
-- Parameters: i_relid - the table; i_trigger_name - the capture to be.
-- Returns: the reason, or NULL if there is none.
-- Writes: nothing.
declare
    _kind "char" := (select relkind from pg_catalog.pg_class where oid = i_relid);
begin
    return case
        when _kind <> 'r' or (select relispartition from pg_catalog.pg_class where oid = i_relid) then
            'transition tables need an ordinary table that is no partition'
        when exists (select from pg_catalog.pg_inherits where i_relid in (inhrelid, inhparent)) then
            'transition tables need a table without inheritance'
        when not has_function_privilege('vedur.capture_bulk()', 'execute') then
            format('role "%s" may not execute vedur.capture_bulk(): grant pgq_admin to it', current_user)
        when exists (
            select from vedur.capture_columns(i_relid) as c
                join pg_catalog.pg_type as t on t.oid = c.col_type
            where c.col_name = any (vedur.capture_key(i_relid, null))
                and t.typnamespace <> 'pg_catalog'::regnamespace) then
            'its key has a column of a user-defined type'
        when vedur.capture_key_deferred(i_relid, vedur.capture_key(i_relid, null)) then
            'its key is DEFERRABLE, so that two rows can share it when a statement ends: use mode "row"'
        when i_trigger_name like 'zzz%' then 'SKIP triggers fire for each row'
    end;
end;
$$;
