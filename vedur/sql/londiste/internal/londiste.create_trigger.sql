create or replace function londiste.create_trigger(
    in i_queue_name text,
    in i_table_name text,
    in i_trg_args text[],
    in i_dest_table text,
    in i_node_type text,
    out ret_code integer,
    out ret_note text,
    out trigger_name text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Put the row trigger and the truncate trigger of a queue on a table, replacing old ones.
--
-- Parameters: i_queue_name - cascaded queue; i_table_name - name in the set; i_trg_args - see
--             londiste.trigger_plan; i_dest_table - name on this node; i_node_type - on a leaf
--             both triggers refuse writes of users.
-- Returns: 200 done; 201 no trigger wanted; 301 done, but another AFTER ROW trigger fires
--          first: what it writes elsewhere gets into the queue before this row (rows that it
--          changes in the same table are logged as they are in the end); 403 AFTER trigger
--          together with SKIP, on a root also skip alone; 405 several SKIP triggers, another
--          table of the queue has the trigger, ignore= with a DEFERRABLE key, or a queue name
--          that is too long for names of triggers.
--          trigger_name is the row trigger.
-- Writes: triggers of the table.
-- Raises: undefined_table when the table is not there.
-- ----------------------------------------------------------------------
declare
    _dest text := coalesce(i_dest_table, i_table_name);
    _rel text := londiste.quote_fqname(_dest);
    _oid oid;
    _plan record;
    _func text;
    _skips text[];
    _other text;
    _shared boolean;
    _made integer := 0;
    _deferred boolean := false;
    _note text;
    _ours boolean := to_regprocedure('vedur.create_capture(text,text,text,text,text,text,text[])') is not null;
begin
    select * into _plan
    from londiste.trigger_plan(i_table_name, i_trg_args, _dest, i_node_type);
    if not _plan.wanted then
        ret_code := 201;
        ret_note := 'Trigger not created';
        return;
    end if;
    _oid := _rel::regclass;

    -- PostgreSQL would cut the names of both triggers to the same one, or to that of another queue.
    if octet_length(i_queue_name) > 52 or _plan.skip and octet_length(i_queue_name) > 49 then
        ret_code := 405;
        ret_note := format(
            'the name of queue "%s" has %s bytes, which is too long for names of triggers: they have room for %s',
            i_queue_name, octet_length(i_queue_name), case when _plan.skip then '49, with "skip"' else '52' end);
        return;
    end if;

    -- Two tables of a set may be one table here, as two entrances of a queue; the second must
    -- leave the triggers of the first alone.
    _shared := exists (
        select 1
        from londiste.table_info t
        where t.queue_name = i_queue_name
            and t.table_name <> i_table_name
            and t.local
            and coalesce(t.dest_table, t.table_name) = _dest);

    -- SKIP triggers of others. Our own are replaced below, so they do not count.
    select coalesce(array_agg(g.tgname::text order by g.tgname), '{}')
    into _skips
    from pg_catalog.pg_trigger g
    where g.tgrelid = _oid
        and not g.tgisinternal
        and londiste.is_replica_func(g.tgfoid)
        and (_shared or g.tgname <> ('zzz__londiste_' || i_queue_name)::name)
        and lower(pg_catalog.encode(g.tgargs, 'escape')) ~ E'\\\\000skip\\\\000';

    if _plan.timing = 'after' and (_plan.skip or cardinality(_skips) > 0) then
        ret_code := 403;
        ret_note := 'AFTER trigger cannot work with SKIP trigger(s)';
        -- Who says A too has not forgotten B.
        if _plan.skip and i_node_type = 'root'
            and not exists (select 1 from unnest(i_trg_args) a (arg) where a.arg ~ '^tgflags=.*[Aa]')
        then
            ret_note := ret_note || ': "skip" keeps rows out of the table, so that the root itself loses them;'
                || ' leave it away, or say tgflags=B too if that is wanted';
        end if;
        return;
    end if;
    if _plan.skip and cardinality(_skips) > 1 then
        ret_code := 405;
        ret_note := 'Multiple SKIP triggers';
        return;
    end if;

    if _shared and exists (
        select 1
        from pg_catalog.pg_trigger g
        where g.tgrelid = _oid
            and g.tgname = ('_londiste_' || i_queue_name)::name
    ) then
        ret_code := 405;
        ret_note := 'Another table of queue ' || i_queue_name || ' uses the trigger of ' || _dest;
        return;
    end if;
    if not _shared then
        perform londiste.drop_trigger(_oid, '_londiste_' || i_queue_name);
        perform londiste.drop_trigger(_oid, 'zzz__londiste_' || i_queue_name);
        perform londiste.drop_trigger(_oid, '_londiste_' || i_queue_name || '_truncate');
        perform londiste.drop_partition_triggers(i_queue_name, _oid);
    end if;

    -- So that changes of a table that got another name by hand still carry its name in the set.
    if _ours and i_node_type <> 'leaf'
        and not exists (select 1 from unnest(_plan.args) a (arg) where a.arg like 'ev_extra1=%')
    then
        _plan.args := _plan.args || ('ev_extra1=' || quote_literal(i_table_name));
    end if;
    trigger_name := '_londiste_' || i_queue_name;
    if _plan.skip and cardinality(_skips) = 1 then
        -- One SKIP is enough for all queues, if it fires last: nothing fires after it.
        if _skips[1] not like E'zzz\\_%' then
            execute 'alter trigger ' || quote_ident(_skips[1]) || ' on ' || _rel
                || ' rename to ' || quote_ident('zzz_' || _skips[1]);
        end if;
    elsif _plan.skip then
        trigger_name := 'zzz__londiste_' || i_queue_name;
        _plan.args := _plan.args || 'SKIP'::text;
    end if;
    if i_node_type = 'leaf' then
        _plan.args := _plan.args || 'deny'::text;
    end if;

    -- A key that is checked later than its rows are written is captured at the end of the transaction.
    if _plan.timing = 'after' and not (_plan.args && array['deny'])
        and to_regprocedure('vedur.capture_deferral(oid,text,text[])') is not null
    then
        execute 'select d.deferred, d.refusal from vedur.capture_deferral($1, $2, $3) d'
        into _deferred, _note
        using _oid, trigger_name, i_queue_name || _plan.args;
        if _note is not null then
            ret_code := 405;
            ret_note := _note;
            return;
        end if;
    end if;

    if _plan.timing = 'after' and not (_plan.args && array['deny'])
        and _ours
    then
        -- Generated capture writes the same events, faster where it can, and needs no right of
        -- those who write the table; what it refuses, the contract's trigger does.
        execute 'select c.ret_code from vedur.create_capture($1, $2, $3, $4, $5, $6, $7) c'
        into _made
        using i_queue_name, _rel, trigger_name, _plan.format, _plan.ops, 'row', _plan.args;
    end if;
    if coalesce(_made, 0) <> 200 then
        _func := case _plan.format
            when 'json' then 'pgq.jsontriga'
            when 'sql' then 'pgq.sqltriga'
            else 'pgq.logutriga'
        end;
        execute format(
            'create %s %I %s %s on %s %s for each row execute function %s(%s)',
            case when _deferred then 'constraint trigger' else 'trigger' end, trigger_name, _plan.timing,
            concat_ws(' or ',
                case when _plan.ops like '%I%' then 'insert' end,
                case when _plan.ops like '%U%' then 'update' end,
                case when _plan.ops like '%D%' then 'delete' end),
            _rel, case when _deferred then 'deferrable initially deferred' end, _func,
            (select string_agg(quote_literal(a.arg), ', ' order by a.nr)
             from unnest(i_queue_name || _plan.args) with ordinality a (arg, nr)));
    end if;

    if not _shared then
        execute format(
            'create trigger %I after truncate on %s for each statement execute function %s',
            '_londiste_' || i_queue_name || '_truncate', _rel,
            case
                when i_node_type = 'leaf' then format('pgq.sqltriga(%L, ''deny'')', i_queue_name)
                when i_table_name <> _dest or _ours
                then format('londiste.truncate_renamed(%L, %L)', i_queue_name, i_table_name)
                else format('pgq.sqltriga(%L)', i_queue_name)
            end);
        -- Statement triggers are not cloned to partitions, as row triggers are.
        if to_regprocedure('vedur.guard_partitions(text,oid)') is not null then
            execute 'select vedur.guard_partitions($1, $2)'
            using i_queue_name, _oid;
        end if;
    end if;

    -- tgtype bits: 1 row, 2 before, 64 instead of.
    select g.tgname::text
    into _other
    from pg_catalog.pg_trigger g
    where g.tgrelid = _oid
        and not g.tgisinternal
        and g.tgtype & 1 = 1
        and g.tgtype & (2 | 64) = 0
        and g.tgname < trigger_name::name
        and not londiste.is_replica_func(g.tgfoid)
    order by g.tgname
    limit 1;
    if _other is not null and _plan.timing = 'after' and i_node_type <> 'leaf' then
        ret_code := 301;
        ret_note := 'londiste trigger is not first: ' || _other;
        return;
    end if;

    ret_code := 200;
    ret_note := 'OK';
end;
$$;
