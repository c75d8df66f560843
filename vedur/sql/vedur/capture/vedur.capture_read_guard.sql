create or replace function vedur.capture_read_guard(i_relid oid)
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Refuse to read a table whose owner could run functions of his own by that.
--
-- Parameters: i_relid - a table that capture reads as its owner.
-- Returns: nothing.
-- Writes: nothing.
-- Errors: insufficient_privilege.
--
-- The planner computes the constant parts of index expressions, index conditions, checks and extended statistics of
-- every table that a query reads, as the role that asks. A table of the same owner or of a superuser is as trusted as the
-- caller. For others, none of these may use anything that a user made; in an isolation level where this query might not
-- see them, the table is not read at all.
begin
    if exists (
        select
        from pg_class as c
            join pg_roles as r on r.oid = c.relowner
        where c.oid = i_relid
            and (r.rolsuper or r.rolname = current_user)
    ) then
        return;
    end if;
    if current_setting('transaction_isolation') <> 'read committed'
        or exists (select from pg_inherits as i where i.inhparent = i_relid)
        or exists (
            select
            from pg_depend as d
            where d.refobjid >= 16384
                and d.refclassid in (
                    'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_collation'::regclass)
                and (
                    d.classid = 'pg_class'::regclass
                        and d.objid in (select i.indexrelid from pg_index as i where i.indrelid = i_relid)
                    or d.classid = 'pg_constraint'::regclass
                        and d.objid in (select k.oid from pg_constraint as k where k.conrelid = i_relid)
                    or d.classid = 'pg_statistic_ext'::regclass
                        and d.objid in (select s.oid from pg_statistic_ext as s where s.stxrelid = i_relid)))
    then
        raise exception 'bulk capture cannot read table "%", which is changed by its own triggers, as role "%"',
            i_relid::regclass, current_user
            using errcode = 'insufficient_privilege',
                detail = 'Functions in its indexes or checks would run with the rights of that role.',
                hint = 'Capture the table in mode "row".';
    end if;
end;
$$;
