create or replace function vedur.queue_faults(i_queue_name text)
returns table (seq_name text, of_events boolean, fault text, remedy text, reached bigint)
language sql
stable
as $$
-- List what is wrong with the sequences of a queue: events of a row are applied in the order of their numbers, and
-- ticks are read in the order of theirs.
--
-- Parameters: i_queue_name.
-- Returns: for each fault the sequence, whether it is that of events, what is wrong, the statement that mends it, and
--     the number that it must have reached, where that is the fault.
-- Writes: nothing.
--
-- With a cache, each session takes numbers in advance, so that a change may get a lower one than another that it
-- waited for. A sequence that was set back begins with numbers that were used before; one that was restarted says that it has
-- no last value until it gives the first one.
    with here as (
        select s.name, s.of_events, p.*, q.queue_external_ticker, t.reached,
            case when pg_catalog.has_sequence_privilege(p.seqrelid, 'select')
                then coalesce(pg_catalog.pg_sequence_last_value(p.seqrelid), pgq.seq_getval(s.name) - 1) end as last_value
        from pgq.queue as q
            cross join lateral (values (q.queue_event_seq, true), (q.queue_tick_seq, false)) as s (name, of_events)
            join pg_catalog.pg_sequence as p on p.seqrelid = pg_catalog.to_regclass(pgq.quote_fqname(s.name))
            cross join lateral (
                select max(case when s.of_events then k.tick_event_seq else k.tick_id end) as reached
                from pgq.tick as k
                where k.tick_queue = q.queue_id) as t
        where q.queue_name = i_queue_name
    )
    select h.name, h.of_events, pg_catalog.format('CACHE %s', h.seqcache), pg_catalog.format('alter sequence %s cache 1', pgq.quote_fqname(h.name)), null::bigint
    from here as h
    where h.seqcache <> 1
    union all
    select h.name, h.of_events, pg_catalog.format('INCREMENT %s', h.seqincrement),
        pg_catalog.format('alter sequence %s increment 1', pgq.quote_fqname(h.name)), null
    from here as h
    where h.seqincrement < 0
    union all
    select h.name, h.of_events, 'CYCLE', pg_catalog.format('alter sequence %s no cycle', pgq.quote_fqname(h.name)), null
    from here as h
    where h.seqcycle
    union all
    -- Events after the last tick may have greater numbers than it knows of: far beyond them. Upstream's first tick says 1
    -- of a sequence that was never used.
    select h.name, h.of_events, pg_catalog.format('set back from %s to %s', h.reached, h.last_value),
        pg_catalog.format('select setval(%L, %s)', pgq.quote_fqname(h.name), h.reached + w.further), h.reached + w.further
    from here as h
        cross join lateral (select case when h.of_events then 1000000 else 0 end as further) as w
    where not h.queue_external_ticker
        and h.last_value < h.reached
        and h.reached > 1
$$;
