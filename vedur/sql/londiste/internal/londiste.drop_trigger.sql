create or replace function londiste.drop_trigger(i_table oid, i_trigger_name text)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Remove one trigger, with the function that was generated for it, if there is one.
--
-- Parameters: i_table - table; i_trigger_name - trigger.
-- Returns: nothing; fine when the trigger is not there.
-- Writes: the trigger, through vedur.drop_capture where capture is generated.
-- Raises: errors of DROP TRIGGER.
-- ----------------------------------------------------------------------
declare
    _generated boolean;
begin
    select f.pronamespace in (to_regnamespace('vedur'), to_regnamespace('vedur_work'))
        and to_regprocedure('vedur.drop_capture(text,text)') is not null
    into _generated
    from pg_catalog.pg_trigger g
        join pg_catalog.pg_proc f on f.oid = g.tgfoid
    where g.tgrelid = i_table
        and not g.tgisinternal
        and g.tgname = i_trigger_name::name;
    if not found then
        return;
    end if;

    if _generated then
        execute 'select vedur.drop_capture($1, $2)'
        using i_table::regclass::text, i_trigger_name;
    end if;
    if exists (
        select 1
        from pg_catalog.pg_trigger g
        where g.tgrelid = i_table
            and not g.tgisinternal
            and g.tgname = i_trigger_name::name
    ) then
        execute 'drop trigger ' || quote_ident(i_trigger_name) || ' on ' || i_table::regclass;
    end if;
end;
$$;
