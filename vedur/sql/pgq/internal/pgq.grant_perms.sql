create or replace function pgq.grant_perms(x_queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Sets the permissions of a queue's tables and sequences: tables as pgq.event_template, sequences readable by all.
--
-- Parameters:
--     x_queue_name    name of the queue
-- Returns: 1
-- Writes: permissions
-- Raises: Queue not found
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _parent text;
begin
    select * into _queue
    from pgq.queue
    where queue_name = x_queue_name;
    if not found then
        raise exception 'Queue not found';
    end if;

    execute format(
        'grant select on sequence %s, %s to public',
        pgq.quote_fqname(_queue.queue_event_seq), pgq.quote_fqname(_queue.queue_tick_seq));
    if exists (select 1 from pg_roles where rolname = 'pgq_admin') then
        execute format('grant usage on sequence %s to pgq_admin', pgq.quote_fqname(_queue.queue_event_seq));
    end if;

    _parent := split_part(_queue.queue_data_pfx, '.', 2);
    perform pgq._grant_perms_from('pgq', 'event_template', 'pgq', _parent);
    for _nr in 0 .. _queue.queue_ntables - 1 loop
        perform pgq._grant_perms_from('pgq', 'event_template', 'pgq', _parent || '_' || _nr);
    end loop;
    return 1;
end;
$$;
