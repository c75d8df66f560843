create or replace function pgq.create_queue(i_queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Creates a queue: its row, sequences, event tables, grants and first tick.
--
-- Parameters:
--     i_queue_name    name of the queue
-- Returns: 1 created, 0 it exists already
-- Writes: pgq.queue, pgq.tick; creates pgq.event_N, pgq.event_N_0 .. and two sequences
-- Raises: Invalid NULL value
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _table text;
begin
    if i_queue_name is null then
        raise exception 'Invalid NULL value';
    end if;

    -- The number is drawn only for a new queue; of two who create the same one, the second waits and gets 0.
    if exists (select 1 from pgq.queue where queue_name = i_queue_name) then
        return 0;
    end if;
    _queue.queue_id := nextval('pgq.queue_queue_id_seq');
    insert into pgq.queue (queue_id, queue_name, queue_data_pfx, queue_event_seq, queue_tick_seq)
    values (
        _queue.queue_id, i_queue_name, 'pgq.event_' || _queue.queue_id,
        'pgq.event_' || _queue.queue_id || '_id_seq', 'pgq.event_' || _queue.queue_id || '_tick_seq'
    )
    on conflict (queue_name) do nothing
    returning * into _queue;
    if not found then
        return 0;
    end if;

    execute format('create sequence %s', _queue.queue_event_seq);
    execute format('create sequence %s', _queue.queue_tick_seq);
    execute format('create table %s () inherits (pgq.event_template)', _queue.queue_data_pfx);
    for _nr in 0 .. _queue.queue_ntables - 1 loop
        _table := _queue.queue_data_pfx || '_' || _nr;
        execute format('create table %s () inherits (%s)', _table, _queue.queue_data_pfx);
        execute format('alter table %s alter column ev_id set default nextval(%L)', _table, _queue.queue_event_seq);
        execute format('create index %I on %s (ev_txid)', split_part(_table, '.', 2) || '_txid_idx', _table);
    end loop;

    perform pgq.tune_storage(i_queue_name);
    perform pgq.grant_perms(i_queue_name);
    perform pgq._write_tick(_queue.queue_id);
    return 1;
end;
$$;
