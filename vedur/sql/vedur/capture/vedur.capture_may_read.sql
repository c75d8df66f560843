create or replace function vedur.capture_may_read(i_relid oid)
returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether capture may read a table as its own owner, without running functions of the table's owner by that.
--
-- Parameters: i_relid - the table; of a partitioned one, with all its partitions.
-- Returns: true if it may.
-- Writes: nothing.
-- Errors: serialization_failure, where the owner may have changed since the snapshot of the transaction.
--
-- The planner computes the constant parts of index expressions, index conditions, checks and extended statistics of
-- every table that a query reads, as the role that asks. A table of the same owner or of a superuser is as trusted as the
-- caller. For others, none of these may use anything that a user made; in an isolation level where this query might not
-- see them, the table is not read at all. There, an owner counts only if that is so now (vedur.capture_owned), and a
-- superuser not at all, since that right may be gone. If the table belonged to the caller at the snapshot, what to do
-- cannot be told, and the transaction has to be repeated.
declare
    _tables oid[];
    _current boolean := current_setting('transaction_isolation') = 'read committed';
begin
    with recursive tree as (
        select i_relid as relid
        union all
        select i.inhrelid
        from tree as t
            join pg_inherits as i on i.inhparent = t.relid
    )
    select array_agg(t.relid) into _tables
    from tree as t;
    -- a partition may have come since the snapshot
    _tables := _tables || array(select p.relid::oid from pg_partition_tree(i_relid) as p where p.relid <> all (_tables));
    if not exists (
        select
        from unnest(_tables) as t (relid)
            left join pg_class as c on c.oid = t.relid
            left join pg_roles as r on r.oid = c.relowner
        where not coalesce(r.rolsuper and _current or r.rolname = current_user and (_current or vedur.capture_owned(c.oid)), false)
    ) then
        return true;
    end if;
    if not _current and not exists (
        select
        from pg_class as c
            join pg_roles as r on r.oid = c.relowner
        where c.oid = any (_tables)
            and r.rolname <> current_user
    ) then
        raise exception 'could not serialize access: table "%" was altered after this transaction began, and its capture has to know the owner',
            i_relid::regclass
            using errcode = 'serialization_failure', hint = 'Repeat the transaction.';
    end if;
    return _current
        -- the creator of a child by inheritance need not own the table
        and not exists (
            select
            from pg_class as c
            where c.oid = any (_tables[2:])
                and not c.relispartition)
        and not exists (
            select
            from pg_depend as d
            where d.refobjid >= 16384
                and d.refclassid in (
                    'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_collation'::regclass)
                and (
                    d.classid = 'pg_class'::regclass
                        and d.objid in (select i.indexrelid from pg_index as i where i.indrelid = any (_tables))
                    or d.classid = 'pg_constraint'::regclass
                        and d.objid in (select k.oid from pg_constraint as k where k.conrelid = any (_tables))
                    or d.classid = 'pg_statistic_ext'::regclass
                        and d.objid in (select s.oid from pg_statistic_ext as s where s.stxrelid = any (_tables))));
end;
$$;
