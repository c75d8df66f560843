create or replace function pgq.batch_event_sql(x_batch_id bigint)
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Builds the query that returns the events of a batch: visible in its upper tick, not in its lower one.
--
-- A scan from the oldest transaction that was open at the lower tick would read everything since a long transaction
-- began, batch after batch. So there are two parts: transactions that began between the ticks, as one range of ev_txid;
-- and those that were open at the lower tick and done at the upper, as a list. No row can be in both.
--
-- Parameters:
--     x_batch_id      open batch
-- Returns: SQL text, ordered by ev_id; columns as pgq.get_batch_events
-- Writes: nothing
-- Raises: batch not found
-- ----------------------------------------------------------------------
declare
    _sub_id integer;
    _last txid_snapshot;
    _cur txid_snapshot;
    _late text;
    _columns constant text :=
        'select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4';
    _parts text[] := '{}';
    _table text;
begin
    select s.sub_id, last.tick_snapshot, cur.tick_snapshot
    into _sub_id, _last, _cur
    from pgq.subscription s
    join pgq.tick last on last.tick_queue = s.sub_queue and last.tick_id = s.sub_last_tick
    join pgq.tick cur on cur.tick_queue = s.sub_queue and cur.tick_id = s.sub_next_tick
    where s.sub_batch = x_batch_id;
    if not found then
        raise exception 'batch not found';
    end if;

    select string_agg(late.txid::text, ', ' order by late.txid) into _late
    from (
        select txid_snapshot_xip(_last) as txid
        except
        select txid_snapshot_xip(_cur)
    ) late;

    for _table in
        select t.name from pgq.batch_event_tables(x_batch_id) as t (name)
    loop
        _parts := _parts || format(
            '%s from only %s where ev_txid >= %s and ev_txid < %s and pg_catalog.txid_visible_in_snapshot(ev_txid, %L)'
            ' and (ev_owner is null or ev_owner = %s)',
            _columns, _table, txid_snapshot_xmax(_last), txid_snapshot_xmax(_cur), _cur, _sub_id);
        if _late is not null then
            _parts := _parts || format(
                '%s from only %s where ev_txid in (%s) and (ev_owner is null or ev_owner = %s)',
                _columns, _table, _late, _sub_id);
        end if;
    end loop;
    return array_to_string(_parts, ' union all ') || ' order by 1';
end;
$$;
