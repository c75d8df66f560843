create or replace function londiste.periodic_maintenance()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Forget scripts that ran more than three months ago; bring generated capture up to the shape of its
-- tables, where there is any; look whether tables were changed by hand (vedur.watch_tables); set
-- sequences of queues right that were altered (vedur.mend_queue).
--
-- Returns: 0 always: there is nothing to repeat at once.
-- Writes: londiste.applied_execute; functions of schema vedur_work; what vedur.watch_tables
--         and vedur.mend_queue write.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    delete from londiste.applied_execute e
    where e.execute_time < now() - interval '3 months';
    if to_regprocedure('vedur.refresh_stale_captures()') is not null then
        execute 'select vedur.refresh_stale_captures()';
    end if;
    if to_regprocedure('vedur.watch_tables(text,boolean)') is not null then
        execute 'select vedur.watch_tables(n.queue_name) from pgq_node.node_info as n';
    end if;
    -- last, since it locks sequences
    if to_regprocedure('vedur.mend_queue(text)') is not null then
        execute 'select vedur.mend_queue(n.queue_name) from pgq_node.node_info as n';
    end if;
    return 0;
end;
$$;
