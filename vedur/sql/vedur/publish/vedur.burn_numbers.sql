create or replace function vedur.burn_numbers(i_stage regclass, i_count integer)
returns bigint[]
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Takes transaction numbers that nobody will ever use. Each is the number of a subtransaction that is rolled back at once: the
-- server never gives it out again, it counts as ended for every snapshot that is taken from now on, and it is greater than any
-- that was given out before the call. A rolled back subtransaction leaves the list of running ones, so thousands do no harm.
--
-- Parameters:
--     i_stage         table that takes the row by which the subtransaction gets its number; none stays
--     i_count         how many
-- Returns: the numbers, growing
-- Writes: nothing that stays
-- Raises: internal_error if the server gives numbers of another kind
-- ----------------------------------------------------------------------
declare
    _base bigint := txid_current();
    _xid bigint;
    _numbers bigint[] := '{}';
    _previous bigint := txid_current();
begin
    for _nr in 1 .. i_count loop
        begin
            execute format(
                'insert into %s (slice, ev_id, ev_time, ev_txid) values (0, 0, now(), 0) returning xmin::text::bigint', i_stage)
            into _xid;
            raise exception using errcode = 'VB000';
        exception
            when sqlstate 'VB000' then null;
        end;
        -- xmin has 32 bits, txid_current() 64: it comes behind our own number, by far less than 2^32.
        _xid := _base + (_xid - _base % 4294967296 + 4294967296) % 4294967296;
        if _xid <= _previous or _xid - _base > 2147483648 then
            raise exception 'transaction number % after %', _xid, _previous using errcode = 'internal_error';
        end if;
        _numbers := _numbers || _xid;
        _previous := _xid;
    end loop;
    if txid_snapshot_xmax(txid_current_snapshot()) <= _numbers[i_count] then
        raise exception 'transaction number % has not ended', _numbers[i_count] using errcode = 'internal_error';
    end if;
    return _numbers;
end;
$$;
