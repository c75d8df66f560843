-- Who may call and read what. Functions are closed to the public unless listed; each group names its role.
-- Running it again changes nothing; a role that does not exist is passed over (see roles.sql).
do $grants$
declare
    _group record;
    _function regprocedure;
    _name text;
begin
    -- The same once more, for whoever may write pgq.queue: only in this schema nobody else can create anything. A third part
    -- would be a schema, in a database that is called "pgq".
    if not exists (
        select 1
        from pg_catalog.pg_constraint c
        where c.conrelid = 'pgq.queue'::regclass and c.conname = 'queue_schema_check')
    then
        alter table pgq.queue add constraint queue_schema_check check (
            queue_data_pfx ~ '^pgq[.][^.]+$' and queue_event_seq ~ '^pgq[.][^.]+$' and queue_tick_seq ~ '^pgq[.][^.]+$');
    end if;

    grant usage on schema pgq to public;

    for _function in
        select p.oid
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pgq'::regnamespace
    loop
        execute format('revoke all on function %s from public', _function);
    end loop;

    -- An operator or a function in a schema where others may create (often public) can fit better than ours: || of text and
    -- integer, format of three texts. It would run as whoever calls. Functions of producers carry their schemas instead,
    -- since a path costs some microseconds an event; the triggers and the cursor take expressions of their callers.
    for _function in
        select p.oid
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pgq'::regnamespace
            and not p.prosecdef
            and p.proconfig is null
            and p.proname not in (
                'insert_event', 'insert_event_raw', '_check_tx_limit', 'quote_fqname', 'get_batch_cursor',
                'jsontriga', 'logutriga', 'sqltriga')
    loop
        execute format('alter function %s set search_path = pg_catalog, pg_temp', _function);
    end loop;

    for _group in
        select *
        from (values
            -- looking, by anybody
            ('public', array['get_queue_info', 'get_consumer_info', 'seq_getval', 'quote_fqname', 'version']),
            -- producing
            ('pgq_writer', array['_insert_event', 'insert_event', 'current_event_table', 'jsontriga', 'logutriga', 'sqltriga']),
            -- consuming
            ('pgq_reader', array[
                'batch_event_sql', 'batch_event_tables', 'batch_retry', 'event_retry', 'find_tick_helper', 'finish_batch',
                'force_tick', 'get_batch_cursor', 'get_batch_events', 'get_batch_info', 'next_batch', 'next_batch_custom',
                'next_batch_info', 'register_consumer', 'register_consumer_at', 'unregister_consumer']),
            -- running it
            ('pgq_admin', array[
                '_check_tx_limit', '_due_ticks', '_grant_perms_from', '_lock_ticker', '_notify_tick', '_write_tick',
                'create_queue', 'drop_queue', 'event_retry_raw', 'grant_perms', 'insert_event_raw', 'maint_operations',
                'maint_retry_events', 'maint_rotate_tables_step1', 'maint_rotate_tables_step2', 'maint_tables_to_vacuum',
                'seq_setval', 'set_queue_config', 'ticker', 'tune_storage', 'upgrade_schema'])
        ) as v (role_name, functions)
        where role_name = 'public'
            or exists (select 1 from pg_catalog.pg_roles r where r.rolname = role_name)
    loop
        for _function in
            select p.oid
            from pg_catalog.pg_proc p
            where p.pronamespace = 'pgq'::regnamespace
                and p.proname = any (_group.functions)
        loop
            execute format('grant execute on function %s to %s', _function, _group.role_name);
        end loop;
    end loop;

    -- Somebody may have granted the function to a role that is in none of ours.
    for _name in
        select r.rolname
        from pg_catalog.pg_proc p
        cross join lateral pg_catalog.aclexplode(p.proacl) a
        join pg_catalog.pg_roles r on r.oid = a.grantee
        where p.oid = 'pgq.insert_event(text, text, text, text, text, text, text)'::regprocedure
            and a.grantee <> p.proowner
    loop
        execute format(
            'grant execute on function pgq._insert_event(text, text, text, text, text, text, text) to %I', _name);
    end loop;

    grant select on table pgq.consumer, pgq.queue, pgq.tick, pgq.subscription to public;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_reader') then
        grant select on table pgq.consumer, pgq.queue, pgq.tick, pgq.subscription, pgq.event_template to pgq_reader;
    end if;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'pgq_admin') then
        grant select, insert, update, delete
            on table pgq.consumer, pgq.tick, pgq.subscription, pgq.retry_queue to pgq_admin;
        -- Rows of pgq.queue name tables and sequences that functions write, truncate and drop as their owner, and functions
        -- that the ticker calls: who could choose them would be that owner.
        revoke insert, update, delete, truncate, references, trigger on table pgq.queue from pgq_admin;
        grant update (
            queue_cur_table, queue_rotation_period, queue_switch_step1, queue_switch_step2, queue_switch_time,
            queue_external_ticker, queue_disable_insert, queue_ticker_paused, queue_ticker_max_count,
            queue_ticker_max_lag, queue_ticker_idle_period, queue_per_tx_limit) on table pgq.queue to pgq_admin;
        grant select, insert, truncate on table pgq.event_template to pgq_admin;
    end if;

    -- Roles may have come after the queues.
    for _name in
        select queue_name from pgq.queue
    loop
        perform pgq.grant_perms(_name);
    end loop;
end;
$grants$;
