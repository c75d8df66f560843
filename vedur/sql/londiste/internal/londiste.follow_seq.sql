create or replace function londiste.follow_seq(i_seq_name text, i_value bigint)
returns bigint
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Moves a sequence on to a published value, in the direction in which it counts; never back, and never beyond its own bound.
--
-- Parameters: i_seq_name - "schema.name", not quoted; i_value - value it must have reached.
-- Returns: last value after the call; null if an argument is null.
-- Writes: the sequence.
-- Raises: undefined_table if there is no such sequence.
-- ----------------------------------------------------------------------
declare
    _last bigint := pgq.seq_getval(i_seq_name);
    _seq record;
    _value bigint;
begin
    select s.seqrelid::regclass as rel, s.seqincrement > 0 as up, s.seqmin, s.seqmax
    into _seq
    from pg_catalog.pg_sequence s
    where s.seqrelid = pgq.quote_fqname(i_seq_name)::regclass;
    _value := case when _seq.up then least(i_value, _seq.seqmax) else greatest(i_value, _seq.seqmin) end;
    if (_seq.up and _last >= _value) or (not _seq.up and _last <= _value) then
        return _last;
    end if;
    return pg_catalog.setval(_seq.rel, _value);
end;
$$;
