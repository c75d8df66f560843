create or replace function vedur.queue_problems(i_queue_name text)
returns table (object_name text, severity text, what text, action text)
language sql
stable
as $$
-- Tell what was changed by hand about the sequences and event tables of a queue, so that events may be lost, hidden
-- or applied in another order.
--
-- Parameters: i_queue_name.
-- Returns: sequence or table, severity (fail or warn), what, and what to do.
-- Writes: nothing.
    with tables as (
        select c.*, c.oid::pg_catalog.regclass::text as name
        from pgq.queue as q
            cross join lateral pg_catalog.generate_series(0, q.queue_ntables - 1) as g (nr)
            join pg_catalog.pg_class as c
                on c.oid = pg_catalog.to_regclass(pgq.quote_fqname(q.queue_data_pfx || '_' || g.nr))
        where q.queue_name = i_queue_name
    )
    select f.seq_name, 'fail', pg_catalog.format('the sequence has another order than events and ticks need: %s', f.fault),
        pg_catalog.format('the worker and pgqd set it right as soon as they get a lock; or run as its owner: %s', f.remedy)
    from vedur.queue_faults(i_queue_name) as f
    union all
    select t.name, 'fail', 'the event table is UNLOGGED: a crash of the server empties it',
        pg_catalog.format('alter table %s set logged', t.name)
    from tables as t
    where t.relpersistence <> 'p'
    union all
    select t.name, 'fail', 'the event table has row level security, which hides events',
        pg_catalog.format('alter table %s disable row level security', t.name)
    from tables as t
    where t.relrowsecurity
    union all
    select t.name, 'fail', pg_catalog.format('the event table has a rule, which can swallow events: %s', r.rulename),
        pg_catalog.format('drop rule %I on %s', r.rulename, t.name)
    from tables as t
        join pg_catalog.pg_rewrite as r on r.ev_class = t.oid and r.ev_enabled <> 'D'
    union all
    select t.name, case when g.tgtype & 7 = 7 then 'fail' else 'warn' end,
        pg_catalog.format('the event table has a trigger, which can change or refuse events: %s', g.tgname),
        pg_catalog.format('drop trigger %I on %s', g.tgname, t.name)
    from tables as t
        join pg_catalog.pg_trigger as g on g.tgrelid = t.oid and not g.tgisinternal and g.tgenabled <> 'D'
    union all
    select t.name, 'warn', 'the event table has no index on ev_txid: every batch reads all of it',
        pg_catalog.format('create index on %s (ev_txid)', t.name)
    from tables as t
    where not exists (
        select
        from pg_catalog.pg_index as i
            join pg_catalog.pg_attribute as a on a.attrelid = t.oid and a.attname = 'ev_txid'
        where i.indrelid = t.oid
            and i.indisvalid
            and i.indpred is null
            and i.indkey[0] = a.attnum)
$$;
