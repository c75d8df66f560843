create or replace function vedur.capture_deferral(
    i_relid oid,
    i_trigger_name text,
    i_args text[],
    out deferred boolean,
    out refusal text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether the row trigger of a capture must wait for the end of the transaction.
--
-- Parameters: i_relid - the table; i_trigger_name; i_args - arguments of the trigger, queue name first.
-- Returns: deferred, for a key that is checked later than its rows are written; the reason why such a capture is
--     refused, or NULL.
-- Writes: nothing.
-- Errors: bad arguments.
declare
    _a record;
begin
    select * into _a from vedur.capture_arguments(i_args);
    deferred := vedur.capture_key_deferred(i_relid, vedur.capture_key(i_relid, _a.pkey));
    if deferred then
        refusal := vedur.capture_deferred_refusal(i_relid::regclass::text, i_trigger_name, _a.ignored);
    end if;
end;
$$;
