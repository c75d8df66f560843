create or replace function vedur.snapshots_of_branch(
    i_newest txid_snapshot, i_now txid_snapshot, i_numbers bigint[]
)
returns txid_snapshot[]
language plpgsql
immutable
as $$
-- ----------------------------------------------------------------------
-- Makes the snapshots of new ticks of a branch. Each sees the events of its own tick and of all before, and nothing of a
-- transaction that is running now: such a one could insert events under its number if this branch is made root before it ends,
-- and then no tick behind would bring them.
--
-- Parameters:
--     i_newest        snapshot of the newest tick that is there
--     i_now           snapshot of now; it sees all numbers, and that of the transaction which passes them on
--     i_numbers       of each new tick the number that its events have; null for a tick without events
-- Returns: the snapshots; that of a tick without events is the one before it, and from the last tick with events on it sees what
--     i_now sees. Their xmin is the oldest transaction that they do not see, and never goes back from one tick to the next. That of
--     i_now is the transaction of the batch, which may have begun before a rotation: rotation would take the tick for an old one
--     and delete it ahead of its consumers.
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _snapshots txid_snapshot[] := '{}';
    _snapshot txid_snapshot := i_newest;
    _last integer;
    _xmax bigint;
begin
    select coalesce(max(nr), 1) into _last
    from unnest(i_numbers) with ordinality as n (number, nr)
    where number is not null;
    for _nr in 1 .. cardinality(i_numbers) loop
        if _nr >= _last or i_numbers[_nr] is not null then
            _xmax := case when _nr >= _last then txid_snapshot_xmax(i_now) else i_numbers[_nr] + 1 end;
            -- The server counts from 4294967295 to 4294967299: the lowest 32 bits are never 0, 1 or 2.
            _xmax := _xmax + greatest(3 - _xmax % 4294967296, 0);
            select (coalesce(min(x.txid), _xmax) || ':' || _xmax || ':'
                || coalesce(string_agg(x.txid::text, ',' order by x.txid), ''))::txid_snapshot
            into _snapshot
            from txid_snapshot_xip(i_now) as x (txid)
            where x.txid < _xmax;
        end if;
        _snapshots := _snapshots || _snapshot;
    end loop;
    return _snapshots;
end;
$$;
