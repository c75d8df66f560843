-- Who may call what. Roles may be missing when the installer was not allowed to create them;
-- then the schema belongs to its owner alone.
do $do$
declare
    _sig record;
begin
    grant usage on schema pgq_node to public;

    for _sig in
        select p.oid::regprocedure::text as func, p.proname as name
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pgq_node'::regnamespace
    loop
        execute 'revoke all on function ' || _sig.func || ' from public';
        -- Nothing that others create in a schema of the caller's path may stand in for ours.
        execute 'alter function ' || _sig.func || ' set search_path = pg_catalog, pg_temp';

        if _sig.name in ('is_root_node', 'is_leaf_node', 'version') then
            execute 'grant execute on function ' || _sig.func || ' to public';
            continue;
        end if;

        if to_regrole('pgq_admin') is not null then
            execute 'grant execute on function ' || _sig.func || ' to pgq_admin';
        end if;
        if to_regrole('pgq_writer') is not null and _sig.name in (
            'get_consumer_info', 'get_consumer_state', 'get_node_info', 'get_queue_locations',
            'get_subscriber_info', 'register_subscriber', 'set_subscriber_watermark',
            'unregister_subscriber', 'change_consumer_provider', 'register_consumer',
            'set_consumer_completed', 'set_consumer_error', 'set_consumer_paused',
            'set_consumer_uptodate', 'unregister_consumer')
        then
            execute 'grant execute on function ' || _sig.func || ' to pgq_writer';
        end if;
        if to_regrole('pgq_reader') is not null and _sig.name in (
            'get_consumer_info', 'get_consumer_state', 'get_node_info', 'get_queue_locations',
            'get_subscriber_info', 'register_subscriber', 'set_subscriber_watermark',
            'unregister_subscriber')
        then
            execute 'grant execute on function ' || _sig.func || ' to pgq_reader';
        end if;
    end loop;

    if to_regrole('pgq_reader') is not null then
        grant select on pgq_node.node_location, pgq_node.node_info,
            pgq_node.local_state, pgq_node.subscriber_info to pgq_reader;
    end if;
    if to_regrole('pgq_writer') is not null then
        grant select on pgq_node.node_location, pgq_node.node_info,
            pgq_node.local_state, pgq_node.subscriber_info to pgq_writer;
    end if;
    if to_regrole('pgq_admin') is not null then
        grant select, insert, update, delete on pgq_node.node_location, pgq_node.node_info,
            pgq_node.local_state, pgq_node.subscriber_info to pgq_admin;
    end if;
end;
$do$;
