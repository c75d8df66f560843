create or replace function vedur.tick_borders(
    in i_tick_ids bigint[],
    in i_snapshots text[],
    out xmaxes bigint[],
    out late_txids bigint[],
    out late_ticks integer[]
)
language plpgsql
immutable
as $$
-- ----------------------------------------------------------------------
-- Turns the snapshots of consecutive ticks into what places events. An event of transaction t belongs to the first tick whose
-- snapshot contains t. Of a transaction that no snapshot lists as running this is the first tick whose xmax is greater than t:
-- width_bucket(t, xmaxes) + 1. Of one that some list, it is the tick behind the last that does. Ticks are counted from 1; the
-- first one is where the range begins, so what belongs to it or behind the last one is not of the range.
--
-- Parameters:
--     i_tick_ids      ids, for messages
--     i_snapshots     snapshots, as text
-- Returns: xmax of each tick; transactions that were running at some tick, and which tick each belongs to
-- Writes: nothing
-- Raises: data_corrupted if a tick does not see what an earlier one saw, so that an event would belong to two ticks
-- ----------------------------------------------------------------------
declare
    _bad integer;
begin
    select array_agg(txid_snapshot_xmax(s.snapshot::txid_snapshot) order by s.nr) into xmaxes
    from unnest(i_snapshots) with ordinality as s (snapshot, nr);

    select min(b.nr) into _bad
    from (select nr, xmax < lag(xmax) over (order by nr) as back from unnest(xmaxes) with ordinality as x (xmax, nr)) b
    where b.back;
    if _bad is null then
        with listed as (
            select s.nr::integer as nr, x.txid
            from unnest(i_snapshots) with ordinality as s (snapshot, nr)
            cross join lateral txid_snapshot_xip(s.snapshot::txid_snapshot) as x (txid)
        ), runs as (
            -- From the first tick that knows of the transaction to the last at which it was running there is no gap.
            select l.txid, max(l.nr) + 1 as tick,
                case when count(*) <> max(l.nr) - width_bucket(l.txid, xmaxes) then max(l.nr) end as bad
            from listed l
            group by l.txid
        )
        select coalesce(array_agg(r.txid), '{}'), coalesce(array_agg(r.tick), '{}'), min(r.bad)
        into late_txids, late_ticks, _bad
        from runs r;
    end if;
    if _bad is not null then
        raise exception 'tick % of the provider does not see all that an earlier tick saw', i_tick_ids[_bad]
            using errcode = 'data_corrupted',
                hint = 'Two tickers may have run at a time on its queue.';
    end if;
end;
$$;
