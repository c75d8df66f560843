create or replace function vedur.capture_source(
    i_relid oid,
    i_format text,
    i_args text[])
returns text
language plpgsql
stable
as $$
-- Write the body of the row trigger function that captures one table.
--
-- Parameters: i_relid - the table; i_format - json, urlenc or sql; i_args - queue name, then backup, pkey=,
--     ignore= or ev_*= with a literal.
-- Returns: PL/pgSQL text.
-- Writes: nothing.
-- Errors: no such queue.
--
-- The body names every function, operator and type with its schema, since it runs as its owner and has
-- no search_path of its own: setting one costs 5 us a row, a fifth of the whole (PostgreSQL 15).
-- It remembers the queue's current table for the session, but as a hint only: the INSERT itself looks
-- at pgq.queue, and writes nothing if the hint is wrong, the queue is limited or closed, the key
-- changes, or the row is not the latest (vedur.capture_state); then vedur.capture_slow does the work. Few PL/pgSQL
-- statements, because each one is set up again in every transaction.
-- A key that is checked later than the row is written always takes the slow path.
declare
    _q record;
    _a record;
    _hint text;
    _tables text[] := '{}';
    _ops text;
    _op text;
    _table text;
    _home oid := coalesce(pg_catalog.pg_partition_root(i_relid), i_relid);
    _keys text[];
    _key text;
    _deferred boolean;
    _late text;
    _queue_args text := format('%L::pg_catalog.text[]', i_args);
begin
    select * into _a from vedur.capture_arguments(i_args);
    select q.queue_id, q.queue_ntables, q.queue_data_pfx, q.queue_event_seq
    into _q
    from pgq.queue as q
    where q.queue_name = _a.queue_name;
    if not found then
        raise exception 'No such event queue: "%"', _a.queue_name
            using errcode = 'undefined_object';
    end if;
    if i_format = 'sql' or _a.exprs - 'ev_extra1' <> '{}' or not coalesce(vedur.is_literal(_a.exprs ->> 'ev_extra1'), true)
        or cardinality(_a.ignored) > 0
    then
        -- Nothing to gain here: the rights of the owner are what the function is for.
        return format(
            $f$
-- Capture of one table, written by vedur.create_capture.
begin
    %s
    return null;
end;
$f$,
            vedur.capture_slow_call(i_format, _queue_args));
    end if;
    _hint := 'vedur.event_table_' || _q.queue_id;
    select format('%I.%I', n.nspname, c.relname)
    into _table
    from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.oid = i_relid;
    _keys := vedur.capture_key(i_relid, _a.pkey);
    _key := vedur.capture_key_changed(i_relid, _a.pkey, 'new', 'old');
    _deferred := vedur.capture_key_deferred(i_relid, _keys);
    -- A version without xmax is the row. One with it may be locked only, so it is looked for, unless the table's owner
    -- could use that (vedur.capture_may_read). Then changes from within leave a mark, and what comes after it is refused.
    _late := case when cardinality(_keys) > 0 and not _deferred then format(
        $f$
    if tg_op operator(pg_catalog.=) 'INSERT' or tg_op operator(pg_catalog.=) 'UPDATE' then
        if new.xmax operator(pg_catalog.<>) '0'::pg_catalog.xid then
            if vedur.capture_trusts('%1$s'::pg_catalog.regclass) or vedur.capture_may_read(%1$s) then
                _late := not exists (select from only %2$s as "vedur.now" where "vedur.now".ctid operator(pg_catalog.=) new.ctid);
            else
                _late := pg_catalog.current_setting(%4$L, true) operator(pg_catalog.=) '1';
            end if;
        end if;
    end if;
    if pg_catalog.current_setting(%3$L, true) operator(pg_catalog.=) '1'
        or pg_catalog.pg_trigger_depth() operator(pg_catalog.>) 1 and tg_op operator(pg_catalog.=) 'INSERT' and vedur.capture_nested(tg_relid) then
        _late := true;
    end if;
    if pg_catalog.pg_trigger_depth() operator(pg_catalog.>) 1 and not vedur.capture_trusts('%1$s'::pg_catalog.regclass) then
        perform pg_catalog.set_config(%4$L, '1', true);
    end if;$f$, i_relid, _table, 'vedur.nested_' || _home, 'vedur.within_' || _home) end;
    for _nr in 0 .. _q.queue_ntables - 1 loop
        _ops := '';
        foreach _op in array array['UPDATE', 'INSERT', 'DELETE'] loop
            continue when _op <> 'INSERT' and cardinality(_keys) = 0;
            _ops := _ops || format(
                $f$
            %s tg_op operator(pg_catalog.=) %L then
                insert into %s (
                    ev_id, ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
                select pg_catalog.nextval(%L::pg_catalog.regclass), pg_catalog.now(), e.*
                from pgq.queue as q
                    cross join lateral (%s) as e
                where q.queue_id operator(pg_catalog.=) %s
                    and q.queue_cur_table operator(pg_catalog.=) %s
                    and not q.queue_disable_insert
                    and q.queue_per_tx_limit is null%s;$f$,
                case _ops when '' then 'if' else 'elsif' end, _op, pgq.quote_fqname(_q.queue_data_pfx || '_' || _nr),
                pgq.quote_fqname(_q.queue_event_seq), vedur.capture_event(i_relid, _op, i_format, i_args, 'new', 'old'),
                _q.queue_id, _nr, case _op when 'UPDATE' then format(E'\n                    and not (%s)', _key) else '' end);
        end loop;
        _tables := _tables || format(
            E'%s _hint operator(pg_catalog.=) %L then%s\n            end if;', case _nr when 0 then 'if' else '        elsif' end, _nr, _ops);
    end loop;
    return format(
        $f$
-- Capture of one table, written by vedur.create_capture; vedur.refresh_capture writes it anew.
declare
    _hint pg_catalog.text := pg_catalog.current_setting(%1$L, true);
    _late pg_catalog.bool := %9$L;
begin%8$s
    if not _late and vedur.capture_shape('%2$s'::pg_catalog.regclass) operator(pg_catalog.=) %3$L
        and %4$s then
        if _hint is null or _hint operator(pg_catalog.=) '' then
            _hint := pg_catalog.set_config(%1$L, (
                select q.queue_cur_table::pg_catalog.text
                from pgq.queue as q
                where q.queue_id operator(pg_catalog.=) %5$s), false);
        end if;
        %6$s
        end if;
        if found then
            return null;
        end if;
        _hint := pg_catalog.set_config(%1$L, '', false);
    end if;
    %7$s
    return null;
end;
$f$,
        _hint, i_relid, vedur.capture_shape(i_relid), vedur.capture_settings(i_relid, i_format),
        _q.queue_id, array_to_string(_tables, E'\n'), vedur.capture_slow_call(i_format, _queue_args), _late, _deferred);
end;
$$;
