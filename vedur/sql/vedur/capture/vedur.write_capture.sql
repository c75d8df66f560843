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
-- Errors: insufficient_privilege, if another role owns the function; those of vedur.capture_source.
--
-- Replacing a function keeps its owner and its grants, so one that somebody else made is dropped first.
declare
    _name text := format('vedur_work.%I', format('capture_%s_%s', i_relid, left(md5(i_trigger_name), 8)));
    _old record;
begin
    select p.proowner::regrole as owner, exists (select from pg_catalog.pg_trigger as t where t.tgfoid = p.oid) as used
    into _old
    from pg_catalog.pg_proc as p
    where p.oid = to_regprocedure(_name || '()')
        and p.proowner <> (select r.oid from pg_catalog.pg_roles as r where r.rolname = current_user);
    if found and _old.used then
        raise exception 'function %() belongs to role %: drop the capture "%" first', _name, _old.owner, i_trigger_name
            using errcode = 'insufficient_privilege';
    elsif found then
        execute format('drop function %s()', _name);
    end if;
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
