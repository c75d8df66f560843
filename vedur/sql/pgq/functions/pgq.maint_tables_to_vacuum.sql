create or replace function pgq.maint_tables_to_vacuum()
returns setof text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Names the small tables that change often and must be vacuumed by the ticker, if the server does not do it.
--
-- Parameters: none
-- Returns: qualified table names; nothing if autovacuum is on
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    if current_setting('autovacuum') = 'on' then
        return;
    end if;
    return query
    select t.name
    from unnest(array[
        'pgq.subscription', 'pgq.consumer', 'pgq.queue', 'pgq.tick', 'pgq.retry_queue',
        'pgq_ext.completed_tick', 'pgq_ext.completed_batch', 'pgq_ext.completed_event', 'pgq_ext.partial_batch',
        'pgq_node.local_state', 'londiste.seq_info'
    ]) with ordinality as t (name, nr)
    where to_regclass(t.name) is not null
    order by t.nr;
end;
$$;
