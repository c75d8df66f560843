-- Who may call what. Roles may be missing when the installer was not allowed to create them;
-- then the schema belongs to its owner alone.
do $do$
declare
    _sig record;
begin
    grant usage on schema londiste to public;
    grant select on londiste.table_info, londiste.seq_info, londiste.applied_execute,
        londiste.pending_fkeys to public;

    for _sig in
        select p.oid::regprocedure::text as func, p.proname as name
        from pg_catalog.pg_proc p
        where p.pronamespace = 'londiste'::regnamespace
    loop
        execute 'revoke all on function ' || _sig.func || ' from public';

        if _sig.name in (
            'find_column_types', 'find_rel_oid', 'find_seq_oid', 'find_table_fkeys',
            'find_table_oid', 'is_replica_func', 'make_fqname', 'quote_fqname', 'split_fqname',
            'version')
        then
            execute 'grant execute on function ' || _sig.func || ' to public';
            continue;
        end if;

        if to_regrole('londiste_writer') is not null then
            execute 'grant execute on function ' || _sig.func || ' to londiste_writer';
        end if;
        if to_regrole('londiste_reader') is not null
            and _sig.name in ('_coordinate_copy', 'get_seq_list', 'get_table_list')
        then
            execute 'grant execute on function ' || _sig.func || ' to londiste_reader';
        end if;
        if to_regrole('pgq_admin') is not null
            and _sig.name in ('periodic_maintenance', 'root_check_seqs')
        then
            execute 'grant execute on function ' || _sig.func || ' to pgq_admin';
        end if;
    end loop;

    if to_regrole('londiste_reader') is not null then
        grant select on londiste.table_info, londiste.seq_info, londiste.applied_execute,
            londiste.pending_fkeys to londiste_reader;
    end if;
    if to_regrole('pgq_admin') is not null then
        -- These tables hold SQL that the worker runs with its own rights (dropped_ddl, fkey_def,
        -- execute_sql). The ticker's role needs no more than its maintenance writes.
        revoke insert, update, delete, truncate, references, trigger on londiste.table_info,
            londiste.seq_info, londiste.applied_execute, londiste.pending_fkeys from pgq_admin;
        grant select on londiste.table_info, londiste.seq_info, londiste.applied_execute,
            londiste.pending_fkeys to pgq_admin;
        grant update (last_value) on londiste.seq_info to pgq_admin;
        grant delete on londiste.applied_execute to pgq_admin;
    end if;
    if to_regrole('londiste_writer') is not null then
        grant select, insert, update, delete on londiste.table_info, londiste.seq_info,
            londiste.applied_execute, londiste.pending_fkeys to londiste_writer;
        grant usage on sequence londiste.table_info_nr_seq, londiste.seq_info_nr_seq
            to londiste_writer;
    end if;
end;
$do$;
