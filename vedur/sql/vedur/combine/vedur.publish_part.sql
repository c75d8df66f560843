create or replace function vedur.publish_part(
    i_part_name text,
    i_slot integer,
    i_slices bigint[],
    i_event_count bigint,
    i_tick_id bigint,
    i_tick_time timestamptz,
    i_tick_event_seq bigint,
    i_tick_snapshot text,
    i_provider_node text
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Writes what a batch of a part has brought into the combined queue, whose root is this node; in the transaction that changes the
-- tables and moves the position of the part. Rows, scripts and truncates go on, under numbers of the combined queue and in the
-- order of the part; what is about the part's own nodes and tables does not. Event pgq.tick-id comes behind them: whoever has read
-- it has the part up to that tick.
--
-- Several parts may do this at a time: each has its own transaction number, so every tick of the combined queue has all of a batch
-- or nothing of it. A row that two parts change is locked by the first one until it commits, and numbers are taken behind the last
-- row, so events of one row have the order of its changes.
--
-- Not passed on: changes of a table that this node has of other parts and not of this one, so that nodes below have what this one
-- has; and a TRUNCATE of a table that has rows of other parts, too, since it does not say whose rows are meant. Tables that this
-- node does not have at all are passed on.
--
-- A script that is to run for each part gets the part's name behind its own: nodes below run a script of one name and text once.
-- Others tell in ev_extra4 which part they are from: see vedur.note_script.
--
-- Parameters:
--     i_part_name         cascaded queue of the part; this node is a leaf of it
--     i_slot              slot of the raw staging table, see vedur.create_raw_stage
--     i_slices            slices of it that make up the batch, each of one attempt that was successful
--     i_event_count       how many events were staged under them
--     i_tick_id           last tick of the batch
--     i_tick_time, i_tick_event_seq, i_tick_snapshot, i_provider_node    which tick that is, and on which node
-- Returns: number of events, without pgq.tick-id
-- Writes: current event table of the combined queue, its event sequence
-- Raises: VB002 if this node is not the root of the combined queue any more, or if that is closed for a takeover;
--     VB001 if events are missing, so that the batch must be staged again; data_corrupted if events are doubled;
--     object_not_in_prerequisite_state if the part is not merged; insufficient_privilege where somebody made the queue point to
--     other tables; undefined_table without a staging table
-- ----------------------------------------------------------------------
declare
    _node record;
    _queue pgq.queue%rowtype;
    _stage regclass;
    _staged record;
    _shared text[];
    _absent text[];
    -- The table that an event is about, and whether it empties that; in either format.
    _name constant text := '(case when ev_type = ''EXECUTE'' then null when ev_extra1 <> '''' then ev_extra1'
        ' when ev_type like ''{%'' then (ev_type::json #>> ''{table,0}'') || ''.'' || (ev_type::json #>> ''{table,1}'') end)';
    _empties constant text :=
        '(ev_type = ''R'' or ev_type like ''{%"TRUNCATE"%'' and ev_type::json ->> ''op'' = ''TRUNCATE'')';
    _table text;
    _count bigint := 0;
begin
    select n.combined_queue, c.node_type into _node
    from pgq_node.node_info n
    left join pgq_node.node_info c on c.queue_name = n.combined_queue
    where n.queue_name = i_part_name and n.node_type = 'leaf';
    if not found or _node.combined_queue is null then
        raise exception 'queue "%" is not merged into a combined queue on this node', i_part_name
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    -- Whoever closes the queue waits for this transaction, or this one sees that it is closed.
    select * into _queue from pgq.queue where queue_name = _node.combined_queue for share;
    if not found then
        raise exception 'combined queue "%" does not exist', _node.combined_queue
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    select c.node_type into _node.node_type from pgq_node.node_info c where c.queue_name = _node.combined_queue;
    if _node.node_type is distinct from 'root' or _queue.queue_disable_insert then
        raise exception 'combined queue "%" takes nothing of part "%" now: this node is % of it%',
            _node.combined_queue, i_part_name, coalesce('the ' || _node.node_type, 'no node'),
            case when _node.node_type = 'root' then ', and it is closed' else '' end
            using errcode = 'VB002';
    end if;
    if _queue.queue_data_pfx !~ '^pgq[.][^.]+$' or _queue.queue_event_seq !~ '^pgq[.][^.]+$' then
        raise exception 'tables of queue "%" are outside of schema "pgq"', _node.combined_queue
            using errcode = 'insufficient_privilege';
    end if;
    _table := pgq.quote_fqname(_queue.queue_data_pfx || '_' || _queue.queue_cur_table);

    if i_event_count > 0 then
        _stage := vedur.raw_stage(vedur.raw_stage_key(i_part_name), i_slot);
        if _stage is null then
            raise exception 'slot % of queue "%" has no staging table for raw events', i_slot, i_part_name
                using errcode = 'undefined_table', hint = 'Call vedur.create_raw_stage first.';
        end if;
        execute format(
            'select count(*) as n, count(distinct ev_id) as ids,'
            ' array_agg(distinct %s) filter (where %s) as emptied from only %s where slice = any ($1)',
            _name, _empties, _stage)
        into _staged
        using i_slices;
        if _staged.n is distinct from i_event_count then
            raise exception '% events of part "%" are staged and % were read: stage the batch again',
                _staged.n, i_part_name, i_event_count
                using errcode = 'VB001';
        end if;
        if _staged.ids <> _staged.n then
            raise exception '% events of part "%" are staged more than once', _staged.n - _staged.ids, i_part_name
                using errcode = 'data_corrupted';
        end if;
        select coalesce(array_agg(t.table_name), '{}') into _shared
        from londiste.table_info t
        where t.queue_name = i_part_name
            and t.local
            and t.table_name = any (_staged.emptied)
            and exists (
                select 1
                from londiste.table_info o
                join pgq_node.node_info n on n.queue_name = o.queue_name
                where o.local
                    and n.node_type <> 'root'
                    and coalesce(o.dest_table, o.table_name) = coalesce(t.dest_table, t.table_name)
                    and (o.queue_name, o.table_name) <> (t.queue_name, t.table_name));
        select coalesce(array_agg(c.table_name), '{}') into _absent
        from londiste.table_info c
        left join londiste.table_info p on p.queue_name = i_part_name and p.table_name = c.table_name
        where c.queue_name = _node.combined_queue and c.local and p.local is not true;
        execute format(
            'insert into %s (ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
            ' select nextval($2), e.ev_time, txid_current(), e.ev_type, e.ev_data,'
            ' case when e.ev_type = ''EXECUTE'' and e.ev_extra2 ~ ''(^|&)per-part='' then e.ev_extra1 || $5 else e.ev_extra1 end,'
            ' e.ev_extra2, e.ev_extra3, case when e.ev_type = ''EXECUTE'' then coalesce(e.ev_extra4, $6) else e.ev_extra4 end'
            ' from ('
            '     select * from only %s'
            '     where slice = any ($1) and ev_type not like ''pgq.%%'' and ev_type not like ''londiste.%%'''
            '         and (%s = any ($3)) is not true and (%s = any ($4) and %s) is not true'
            '     order by ev_id'
            ' ) e', _table, _stage, _name, _name, _empties)
        using i_slices, _queue.queue_event_seq::regclass, _absent, _shared, ' [' || i_part_name || ']',
            i_part_name;
        get diagnostics _count = row_count;
    end if;

    execute format(
        'insert into %s (ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
        ' values (nextval($1), now(), txid_current(), ''pgq.tick-id'', $2, $3, $4, $5, $6)', _table)
    using _queue.queue_event_seq::regclass, i_tick_id::text, i_part_name,
        -- Londiste's worker looks at none of these.
        i_tick_time::text, i_tick_event_seq || ' ' || i_provider_node, i_tick_snapshot;
    return _count;
end;
$$;
