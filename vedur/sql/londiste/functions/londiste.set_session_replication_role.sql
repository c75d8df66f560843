create or replace function londiste.set_session_replication_role(val text, is_local boolean)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Let a worker that is not superuser choose how triggers fire in its session.
--
-- Parameters: val - origin, replica or local; is_local - for this transaction only.
-- Returns: nothing.
-- Writes: setting session_replication_role. It takes effect when the owner of this function
--         may set it: a superuser, or a role that was granted SET on the parameter.
-- Raises: "bad value for session_replication_role"; insufficient_privilege for the owner.
-- ----------------------------------------------------------------------
begin
    if val is null or val not in ('replica', 'origin', 'local') then
        raise exception 'bad value for session_replication_role';
    end if;
    perform set_config('session_replication_role', val, coalesce(is_local, false));
end;
$$;
