create or replace function vedur.publish(
    i_queue_name text,
    i_slot integer,
    i_slices bigint[],
    i_event_count bigint,
    i_tick_ids bigint[],
    i_tick_times timestamptz[],
    i_tick_event_seqs bigint[],
    i_tick_snapshots text[],
    i_global_watermark bigint default null
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Passes on a range of ticks with all its events, in the transaction that changes the tables of this branch and moves its
-- position. Afterwards every tick of the range is a tick of the local queue, and PgQ's consumers get between any two of them
-- exactly the events that they would get from the provider.
--
-- A batch of PgQ is what one snapshot sees and an earlier one does not, by ev_txid. All events of the range come with one
-- transaction, so those of each tick get a number of their own. What the numbers must be, and why they are:
-- 1. greater than queue_switch_step1, since readers of upstream look for smaller ones in the previous table; they are taken
--    after the queue's row was locked, which rotation locks, too;
-- 2. not seen by the newest tick, for the same reason, unless the database came from a server with greater numbers: refused;
-- 3. given out by this server, so that the ticker of a branch that is made root, and rotation, see them: subtransactions;
-- 4. nobody else's: the subtransactions are rolled back;
-- 5. unseen, as this transaction is, by every snapshot that is taken before it commits. Only its own number has that, so it is
--    used where one tick alone has events. Who compares ev_txid with snapshots of this server needs it, and that is upstream's
--    first copy (see vedur.copies_by_snapshot): while one is under way, events of several ticks are refused, as is a number
--    that breaks rule 1 or 2 because this transaction has begun before a rotation. The worker repeats the batch, in ranges of
--    one tick.
-- The snapshots list all transactions that are running now; see vedur.snapshots_of_branch.
--
-- Parameters:
--     i_queue_name        cascaded queue; this node is a branch of it
--     i_slot              slot of the raw staging table, see vedur.create_raw_stage
--     i_slices            slices of it that make up the range, each of one attempt that was successful
--     i_event_count       how many events were staged under them
--     i_tick_ids          ticks of the range on the provider, beginning with the one that is published already
--     i_tick_times        their tick_time
--     i_tick_event_seqs   their tick_event_seq
--     i_tick_snapshots    their tick_snapshot
--     i_global_watermark  not null: what events pgq.global-watermark say from here on (a branch with sync_watermark)
-- Returns: number of events
-- Writes: current event table, pgq.tick, both sequences of the queue; notifies channel pgq_tick
-- Raises: serialization_failure where the batch has to be repeated; as vedur.lock_branch, vedur.check_new_ticks,
--     vedur.tick_borders; undefined_table without a staging table; VB001 if events are missing, so that the batch
--     must be staged again; data_corrupted if events are doubled or of another range, or if the server's numbers are behind those of the queue
-- ----------------------------------------------------------------------
declare
    _queue_id integer := vedur.lock_branch(i_queue_name);
    _newest txid_snapshot := vedur.check_new_ticks(_queue_id, i_tick_ids, i_tick_times, i_tick_event_seqs);
    _stage regclass := vedur.raw_stage(_queue_id::text, i_slot);
    _queue pgq.queue%rowtype;
    _count integer := cardinality(i_tick_ids);
    _borders record;
    _steps bigint[];
    _ticks integer[];
    _events record;
    _full integer[];
    _foreign bigint;
    _own bigint;
    _fits boolean;
    _copies text;
    _burnt bigint[];
    _numbers bigint[];
    _now txid_snapshot;
begin
    if _stage is null then
        raise exception 'slot % of queue "%" has no staging table for raw events', i_slot, i_queue_name
            using errcode = 'undefined_table', hint = 'Call vedur.create_raw_stage first.';
    end if;
    if cardinality(i_tick_snapshots) is distinct from _count or array_position(i_tick_snapshots, null) is not null then
        raise exception 'there are % ticks and % snapshots', _count, cardinality(i_tick_snapshots)
            using errcode = 'invalid_parameter_value';
    end if;

    -- Which tick each event belongs to, counted from the one that is published: between two of the steps all transactions are of
    -- one tick. One that was running at some tick is a step by itself.
    _borders := vedur.tick_borders(i_tick_ids, i_tick_snapshots);
    select array_agg(p.txid order by p.txid),
        array[1] || array_agg(coalesce(l.tick, width_bucket(p.txid, _borders.xmaxes) + 1) order by p.txid)
    into _steps, _ticks
    from (
        select unnest(_borders.xmaxes)
        union select unnest(_borders.late_txids)
        union select unnest(_borders.late_txids) + 1
    ) as p (txid)
    left join unnest(_borders.late_txids, _borders.late_ticks) as l (txid, tick) on l.txid = p.txid;
    execute format(
        'select count(*) as n, count(distinct ev_id) as ids, max(ev_id) as greatest,'
        ' array_agg(distinct width_bucket(ev_txid, $2) + 1) as places'
        ' from only %s where slice = any ($1)', _stage)
    into _events
    using i_slices, _steps;
    if _events.n is distinct from i_event_count then
        raise exception '% events of queue "%" are staged and % were read: stage the batch again',
            _events.n, i_queue_name, i_event_count
            using errcode = 'VB001';
    end if;
    if _events.ids <> _events.n then
        raise exception '% events of queue "%" are staged more than once', _events.n - _events.ids, i_queue_name
            using errcode = 'data_corrupted';
    end if;
    select coalesce(array_agg(distinct t.tick), '{}'), count(*) filter (where t.tick not between 2 and _count)
    into _full, _foreign
    from (select _ticks[place] from unnest(_events.places) as p (place)) as t (tick);
    if _foreign > 0 then
        execute format(
            'select min(ev_id) from only %s where slice = any ($1) and ($3)[width_bucket(ev_txid, $2) + 1] not between 2 and $4',
            _stage)
        into _foreign
        using i_slices, _steps, _ticks, _count;
        raise exception 'event % of queue "%" is of none of the ticks % to %',
            _foreign, i_queue_name, i_tick_ids[2], i_tick_ids[_count]
            using errcode = 'data_corrupted';
    end if;

    select * into _queue from pgq.queue where queue_id = _queue_id;
    _own := txid_current();
    _fits := cardinality(_full) = 1
        and _own > _queue.queue_switch_step1
        and not txid_visible_in_snapshot(_own, _newest);
    if cardinality(_full) > 0 and not _fits then
        -- From now on nobody subscribes anew: our pgq locks the row for it, upstream's by a foreign key. Who did before is seen.
        perform 1 from pgq.queue where queue_id = _queue_id for update;
        select string_agg('"' || c.name || '"', ', ') into _copies from vedur.copies_by_snapshot(i_queue_name) as c (name);
        if _copies is not null and cardinality(_full) > 1 then
            raise exception 'queue "%" is published tick by tick, because of first copies by snapshot: %', i_queue_name, _copies
                using errcode = 'serialization_failure';
        elsif _copies is not null then
            raise exception 'queue "%" was rotated after this transaction had begun: repeat the batch', i_queue_name
                using errcode = 'serialization_failure', detail = 'First copies by snapshot are under way: ' || _copies;
        end if;
    end if;
    -- One is always taken: after it, the snapshot of now sees our own number, too.
    _burnt := vedur.burn_numbers(_stage, greatest(cardinality(_full), 1));
    if _fits then
        _burnt := array[_own];
    end if;
    _now := txid_current_snapshot();
    if _burnt[1] <= _queue.queue_switch_step1
        or txid_visible_in_snapshot(_burnt[1], _newest)
        or txid_snapshot_xmax(_now) < txid_snapshot_xmax(_newest)
    then
        raise exception 'queue "%" has transaction numbers up to %, but this server is only at %: restored from a dump?',
            i_queue_name,
            greatest(_queue.queue_switch_step1, txid_snapshot_xmax(_newest)), txid_snapshot_xmax(_now)
            using errcode = 'data_corrupted',
                hint = 'Drop the node and make it again, or raise the server''s transaction epoch with pg_resetwal.';
    end if;
    select array_agg(b.number order by t.nr) into _numbers
    from generate_series(2, _count) as t (nr)
    left join unnest(_full, _burnt) as b (tick, number) on b.tick = t.nr;

    -- In no order: readers sort, and the events of a slice stand nearly in theirs. An array without nulls is looked into
    -- without a search.
    execute format(
        'insert into %s (ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
        ' select ev_id, ev_time, ($3)[width_bucket(ev_txid, $2) + 1], ev_type,'
        ' case when ev_type = ''pgq.global-watermark'' then coalesce($4, ev_data) else ev_data end,'
        ' ev_extra1, ev_extra2, ev_extra3, ev_extra4'
        ' from only %s where slice = any ($1)',
        pgq.quote_fqname(_queue.queue_data_pfx || '_' || _queue.queue_cur_table), _stage)
    using i_slices, _steps,
        array(
            select coalesce(n.number, 0)
            from unnest(_ticks) with ordinality as p (tick, nr)
            left join unnest(_numbers) with ordinality as n (number, nr) on n.nr = p.tick - 1
            order by p.nr),
        i_global_watermark::text;

    insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq, tick_snapshot)
    select _queue_id, t.id, t.time, t.event_seq, t.snapshot
    from unnest(
        i_tick_ids[2:], i_tick_times[2:], i_tick_event_seqs[2:],
        vedur.snapshots_of_branch(_newest, _now, _numbers)) as t (id, time, event_seq, snapshot);

    -- As pgq.ticker with four arguments; a sequence that was never used begins behind what was passed on, too.
    perform setval(s.name, s.value)
    from (values
        (_queue.queue_tick_seq::regclass, i_tick_ids[_count]),
        (_queue.queue_event_seq::regclass, greatest(i_tick_event_seqs[_count], _events.greatest))
    ) as s (name, value)
    where s.value > coalesce(pg_sequence_last_value(s.name), 0);
    if octet_length(i_queue_name) < 7900 then
        perform pg_notify('pgq_tick', i_queue_name || ':' || i_tick_ids[_count]);
    end if;
    return _events.n;
end;
$$;
