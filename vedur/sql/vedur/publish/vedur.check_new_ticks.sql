create or replace function vedur.check_new_ticks(
    i_queue_id integer, i_tick_ids bigint[], i_tick_times timestamptz[], i_tick_event_seqs bigint[]
)
returns txid_snapshot
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Makes sure that a range of ticks continues the queue of a branch: it begins at the newest tick, which is where the tables stand,
-- too, and every event of the queue belongs to a tick that is there.
--
-- Parameters:
--     i_queue_id          queue, locked
--     i_tick_ids          ticks of the range; the first is the one where it begins, which is published already
--     i_tick_times        their times on the provider
--     i_tick_event_seqs   their event numbers on the provider
-- Returns: snapshot of the newest tick of the queue
-- Writes: nothing; locks the position of the worker
-- Raises: invalid_parameter_value for ticks that are no range; object_not_in_prerequisite_state for a range that begins
--     elsewhere, and for ticks that are there; data_corrupted where one id means two ticks, and for events without a tick
-- ----------------------------------------------------------------------
declare
    _name text;
    _events text;
    _newest pgq.tick%rowtype;
    _there pgq.tick%rowtype;
    _position bigint;
    _event bigint;
begin
    select queue_name, pgq.quote_fqname(queue_data_pfx) into _name, _events from pgq.queue where queue_id = i_queue_id;
    if coalesce(cardinality(i_tick_ids), 0) < 2
        or cardinality(i_tick_times) is distinct from cardinality(i_tick_ids)
        or cardinality(i_tick_event_seqs) is distinct from cardinality(i_tick_ids)
        or array_position(i_tick_ids, null) is not null
        or array_position(i_tick_times, null) is not null
        or array_position(i_tick_event_seqs, null) is not null
        or exists (
            select 1
            from (select id <= lag(id) over (order by nr) as back from unnest(i_tick_ids) with ordinality as t (id, nr)) b
            where b.back)
    then
        raise exception 'these are no ticks of a range: %', i_tick_ids using errcode = 'invalid_parameter_value';
    end if;

    select * into _newest from pgq.tick where tick_queue = i_queue_id order by tick_id desc limit 1;
    if not found then
        raise exception 'queue "%" has no tick to go on from', _name using errcode = 'object_not_in_prerequisite_state';
    end if;

    -- A tick that is there: is it the same one?
    select t.* into _there
    from unnest(i_tick_ids, i_tick_times, i_tick_event_seqs) with ordinality as n (id, time, event_seq, nr)
    join pgq.tick t on t.tick_queue = i_queue_id and t.tick_id = n.id
    where t.tick_time <> n.time
        -- The tick by which pgq_node.create_node begins the queue of a branch, here or on the provider: its time is another.
        and t.tick_event_seq > 1 and n.event_seq > 1
    order by t.tick_id
    limit 1;
    if found then
        raise exception 'tick % of queue "%" is of % here and of % on the provider: one id, two ticks',
            _there.tick_id, _name, _there.tick_time, i_tick_times[array_position(i_tick_ids, _there.tick_id)]
            using errcode = 'data_corrupted',
                hint = 'The provider may have been restored from a backup, or another node was made root.';
    end if;
    if i_tick_ids[2] <= _newest.tick_id then
        raise exception 'tick % of queue "%" is not behind its newest tick %', i_tick_ids[2], _name, _newest.tick_id
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    if i_tick_ids[1] <> _newest.tick_id then
        raise exception 'the newest tick of queue "%" is %, so ticks from % on would leave a gap',
            _name, _newest.tick_id, i_tick_ids[1]
            using errcode = 'object_not_in_prerequisite_state',
                hint = 'A worker of upstream that was killed leaves the last tick unwritten: write it with pgq.ticker(queue, tick, time, event_seq).';
    end if;

    select s.last_tick_id into _position
    from pgq_node.local_state s
    join pgq_node.node_info n on n.queue_name = s.queue_name and n.worker_name = s.consumer_name
    where s.queue_name = _name
    for update of s;
    if _position is distinct from i_tick_ids[1] then
        raise exception 'the tables of queue "%" stand at tick %, so the range that begins at tick % is not theirs',
            _name, _position, i_tick_ids[1]
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    -- A range with two ends: event tables have no statistics, and without an end the server would expect a third of all
    -- events behind the newest tick, and read the whole queue for each batch.
    execute format(
        'select min(ev_id) from %s where ev_owner is null and (ev_txid between $1 and 9223372036854775807 or ev_txid = any ($2))',
        _events)
    into _event
    using txid_snapshot_xmax(_newest.tick_snapshot), array(select txid_snapshot_xip(_newest.tick_snapshot));
    if _event is not null then
        raise exception 'event % of queue "%" was inserted on this node after its newest tick %', _event, _name, _newest.tick_id
            using errcode = 'data_corrupted',
                hint = 'No other node has it. Look at it in the event tables, and remove it there when nothing needs it any more.';
    end if;
    return _newest.tick_snapshot;
end;
$$;
