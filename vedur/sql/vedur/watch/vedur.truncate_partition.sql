create or replace function vedur.truncate_partition()
returns trigger
language plpgsql
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set extra_float_digits = 1
set lc_monetary = 'C'
set row_security = off
as $$
-- Statement trigger before TRUNCATE on a partition of a replicated table: row triggers are cloned to partitions,
-- statement triggers are not.
--
-- Parameters: queue name; "parent" on the replicated table itself.
-- Returns: NULL.
-- Writes: the delete event of every row of the partition, as its row trigger would write it. So the set follows
--     whatever partitions other nodes have. Nothing in session role "local", and nothing where the whole table is
--     truncated in the same statement: its own trigger tells that in one event.
-- Errors: a change on a leaf; isolation levels in which rows that TRUNCATE removes may be invisible; no right to
--     read the partition or to write the queue.
declare
    _mark text := 'vedur.truncates_' || pg_catalog.md5(tg_argv[0]);
    _row record;
    _events text;
begin
    if pg_catalog.current_setting('session_replication_role') = 'local' then
        return null;
    end if;
    if tg_argv[1] = 'parent' then
        -- set before the first partition's turn, taken away after the last one's
        perform pg_catalog.set_config(_mark, case tg_when when 'BEFORE' then tg_relid::text else '' end, true);
        return null;
    end if;
    -- A generated function keeps format and arguments in its comment, the contract's triggers have them themselves.
    select t.tgtype & 8 > 0 as deletes,
        coalesce(g.spec ->> 'format', case p.proname when 'jsontriga' then 'json' when 'sqltriga' then 'sql' else 'urlenc' end) as format,
        case when g.spec is null then tg_relid else vedur.capture_home(tg_relid, t.tgname) end as home,
        case when g.spec is null then vedur.trigger_arguments(t.tgargs)
            else array(select pg_catalog.jsonb_array_elements_text(g.spec -> 'args')) end as args
    into _row
    from pg_catalog.pg_trigger as t
        join pg_catalog.pg_proc as p on p.oid = t.tgfoid
        cross join lateral (
            select case when p.pronamespace = 'vedur_work'::regnamespace
                then pg_catalog.obj_description(p.oid, 'pg_proc')::jsonb end as spec) as g
    where t.tgrelid = tg_relid
        and t.tgparentid <> 0
        and t.tgtype & 1 > 0
        and t.tgname in (('_londiste_' || tg_argv[0])::name, ('zzz__londiste_' || tg_argv[0])::name)
    order by t.tgname
    limit 1;
    if not found then
        return null;  -- it is no partition of the table any more
    end if;
    if 'deny' = any (_row.args) then
        raise exception 'Table ''%.%'' to queue ''%'': change not allowed (TRUNCATE)', tg_table_schema, tg_table_name, tg_argv[0]
            using errcode = 'read_only_sql_transaction';
    end if;
    if exists (
        select
        from pg_catalog.pg_partition_ancestors(tg_relid) as a
        where a.relid::oid::text = pg_catalog.current_setting(_mark, true)
    ) or not _row.deletes then
        return null;
    end if;
    if pg_catalog.current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'TRUNCATE of partition "%.%" of a replicated table needs isolation level READ COMMITTED', tg_table_schema, tg_table_name
            using errcode = 'feature_not_supported',
                hint = 'TRUNCATE also removes rows that a transaction of a higher level does not see, and each needs a delete event.';
    end if;
    _events := vedur.capture_event(_row.home, 'DELETE', _row.format, _row.args, '"vedur.new"', '"vedur.old"');
    begin
        execute pg_catalog.format(
            'select pgq.insert_event(%L, e.ev_type, e.ev_data, e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4)'
                ' from only %I.%I as "vedur.old" cross join lateral (%s) as e',
            tg_argv[0], tg_table_schema, tg_table_name, _events);
    exception
        when insufficient_privilege then
            raise exception 'TRUNCATE of partition "%.%" of a replicated table writes a delete event for every row: %', tg_table_schema, tg_table_name, sqlerrm
                using errcode = 'insufficient_privilege',
                    hint = 'Grant SELECT on the partition and role pgq_writer, or truncate it on all nodes with "execute".';
    end;
    return null;
end;
$$;
