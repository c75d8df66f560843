create or replace function vedur.write_capture(
    i_relid oid,
    i_trigger_name text,
    i_format text,
    i_args text[])
returns text
language plpgsql
as $$
-- Create or replace the function behind a row capture trigger.
--
-- Parameters: i_relid - the table; i_trigger_name; i_format - json or urlenc; i_args - queue name first.
-- Returns: the function's name, quoted. Its comment keeps format and arguments for vedur.refresh_capture.
-- Writes: the function, owned by the caller, whose rights it uses; nobody else may attach it to a table.
-- Errors: those of vedur.capture_source.
declare
    _name text := format('vedur.%I', format('capture_%s_%s', i_relid, left(md5(i_trigger_name), 8)));
begin
    execute format(
        'create or replace function %s() returns trigger language plpgsql security definer as %L',
        _name, vedur.capture_source(i_relid, i_format, i_args));
    execute format('revoke all on function %s() from public', _name);
    execute format(
        'comment on function %s() is %L', _name,
        jsonb_build_object('format', i_format, 'args', to_jsonb(i_args), 'trigger', i_trigger_name));
    return _name;
end;
$$;
