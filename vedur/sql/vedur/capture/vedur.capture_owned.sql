create or replace function vedur.capture_owned(i_relid oid)
returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether a table belongs to the role that asks, also where the snapshot may show the owner of earlier.
--
-- Parameters: i_relid - the table.
-- Returns: true if it does; false if it does not, or if that cannot be told.
-- Writes: nothing.
--
-- A repeatable read transaction sees the table's row of before, but also whether it was changed since. Many commands
-- change that row, ALTER TABLE ... OWNER alone changes the one that names the owner (pg_shdepend). A role that the
-- server came with, as its first superuser, has none.
begin
    return exists (
        select
        from pg_class as c
            join pg_roles as r on r.oid = c.relowner
        where c.oid = i_relid
            and r.rolname = current_user
            and (
                not vedur.capture_outdated(c.xmax)
                or r.oid >= 16384 and exists (
                    select
                    from pg_shdepend as d
                    where d.dbid = (select b.oid from pg_database as b where b.datname = current_database())
                        and d.classid = 'pg_class'::regclass
                        and d.objid = c.oid
                        and d.objsubid = 0
                        and d.refclassid = 'pg_authid'::regclass
                        and d.refobjid = r.oid
                        and d.deptype = 'o'
                        and not vedur.capture_outdated(d.xmax))));
end;
$$;
