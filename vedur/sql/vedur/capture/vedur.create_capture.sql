create or replace function vedur.create_capture(
    i_queue_name text,
    i_table_name text,
    i_trigger_name text,
    i_format text default 'json',
    i_ops text default 'IUD',
    i_mode text default 'row',
    i_args text[] default '{}',
    out ret_code int,
    out ret_note text)
language plpgsql
as $$
-- Capture the changes of a table into a queue with triggers that cost little.
--
-- Parameters: i_queue_name; i_table_name - as for regclass; i_trigger_name; i_format - json, urlenc or sql;
--     i_ops - any of I, U, D, and T for a second trigger "<name>_truncate"; i_mode - "row" or "bulk";
--     i_args - further arguments of the contract's triggers.
-- Returns: 200 created, and existing triggers of these names replaced; 400 bad arguments; 403 rights are
--     missing; 404 no such queue or table; 405 bulk is not safe here. Nothing is changed unless 200.
-- Writes: triggers on the table, a function in schema vedur_work.
--
-- Format sql and arguments that change events (ignore=, ev_*= with a literal, but for ev_extra1=) get a function that is no faster than the
-- contract's trigger, but writers need no right on the queue, if the caller has it. when=, other expressions and magic columns get the
-- contract's trigger, which runs as the writer, since they let others choose what is run or sent; the note says so.
-- Where the key is checked later than its rows are written (DEFERRABLE), the row trigger is a constraint trigger that
-- fires at the end of the transaction.
declare
    _rel oid := to_regclass(i_table_name);
    _args text[] := array[i_queue_name] || coalesce(i_args, '{}');
    _a record;
    _q record;
    _function text;
    _events text;
    _generic text := case i_format when 'json' then 'jsontriga' when 'urlenc' then 'logutriga' when 'sql' then 'sqltriga' end;
    _magic boolean;
    _plain boolean;
    _owned boolean;
    _may boolean;
    _deferred boolean;
begin
    select * into _a from vedur.capture_arguments(_args);
    if _generic is null or i_mode not in ('row', 'bulk') or i_ops !~ '^[IUDT]+$' or _a.skip or _a.deny then
        select 400, format(
            'cannot capture "%s" with format "%s", mode "%s", operations "%s", arguments "%s"', i_table_name,
            i_format, i_mode, i_ops, array_to_string(i_args, ' '))
        into ret_code, ret_note;
        return;
    end if;
    select q.queue_id, q.queue_data_pfx, q.queue_event_seq into _q
    from pgq.queue as q
    where q.queue_name = i_queue_name;
    if not found or _rel is null then
        select 404, format(
            'no such %s: "%s"', case when _rel is null then 'table' else 'queue' end,
            case when _rel is null then i_table_name else i_queue_name end)
        into ret_code, ret_note;
        return;
    end if;
    _magic := exists (select from vedur.capture_columns(_rel) as c where c.magic is not null);
    _plain := i_format <> 'sql' and _a.when_expr is null and _a.exprs - 'ev_extra1' = '{}'
        and coalesce(vedur.is_literal(_a.exprs ->> 'ev_extra1'), true) and cardinality(_a.ignored) = 0 and not _magic;
    -- A literal is the same for every reader, under any setting; the name of a renamed table is one.
    _owned := not _magic and _a.when_expr is null and not exists (
        select from jsonb_each_text(_a.exprs) as e where not vedur.is_literal(e.value));
    _deferred := vedur.capture_key_deferred(_rel, vedur.capture_key(_rel, _a.pkey));
    _may := has_table_privilege(pgq.quote_fqname(_q.queue_data_pfx || '_0'), 'insert')
        and has_table_privilege('pgq.queue', 'select')
        and has_sequence_privilege(pgq.quote_fqname(_q.queue_event_seq), 'usage')
        and has_schema_privilege('vedur_work', 'create');
    _owned := _plain or (_owned and _may);
    if _plain and i_mode = 'row' and not _may then
        select 403, format(
            'role "%s" may not write queue "%s" or create functions in schema "vedur_work": grant pgq_admin to it',
            current_user, i_queue_name)
        into ret_code, ret_note;
        return;
    end if;
    -- The function looks at the table with the rights of this role.
    if _owned and i_mode = 'row' and (not has_table_privilege(_rel, 'select') or row_security_active(_rel)) then
        select 403, format(
            'role "%s" does not see all rows of "%s": grant select on it, and bypassrls to the role if row level security is in the way',
            current_user, i_table_name)
        into ret_code, ret_note;
        return;
    end if;
    if _deferred and i_mode = 'row' then
        ret_note := vedur.capture_deferred_refusal(i_table_name, i_trigger_name, _a.ignored);
        if ret_note is not null then
            ret_code := 405;
            return;
        end if;
    end if;
    if i_mode = 'bulk' then
        ret_note := case
            when not _plain or _a.pkey is not null or _a.backup then
                'format sql, arguments and magic columns need mode "row"'
            else vedur.capture_bulk_refusal(_rel, i_trigger_name)
        end;
        if ret_note is not null then
            ret_code := 405;
            ret_note := format('bulk capture of "%s" is refused: %s', i_table_name, ret_note);
            return;
        end if;
    end if;

    perform vedur.drop_capture_triggers(i_table_name, i_trigger_name, position('T' in i_ops) > 0);
    select string_agg(op, ' or ') into _events
    from unnest('{insert,update,delete}'::text[]) as op
    where position(upper(left(op, 1)) in i_ops) > 0;
    _function := format('pgq.%I', _generic);
    if _owned then
        _function := case i_mode
            when 'bulk' then 'vedur.capture_bulk'
            else vedur.write_capture(_rel, i_trigger_name, i_format, _args)
        end;
    end if;
    if i_mode = 'bulk' then
        perform vedur.create_bulk_triggers(_rel, i_trigger_name, i_ops, i_queue_name, i_format);
    elsif _events is not null then
        execute format(
            'create %s %I after %s on %s %s for each row execute function %s(%s)',
            case when _deferred then 'constraint trigger' else 'trigger' end, i_trigger_name, _events,
            _rel::regclass, case when _deferred then 'deferrable initially deferred' end, _function,
            case when _plain then '' else (
                select string_agg(quote_literal(a), ', ' order by n)
                from unnest(_args) with ordinality as u (a, n)) end);
    end if;
    if position('T' in i_ops) > 0 then
        execute format(
            'create trigger %I after truncate on %s for each statement execute function %s', i_trigger_name || '_truncate',
            _rel::regclass, case
                when _owned and (_plain or _a.exprs = '{}') and i_mode = 'row' then _function || '()'
                when _plain then format('%s(%L, %L)', _function, i_queue_name, i_format)
                else format('pgq.%I(%L)', _generic, i_queue_name)
            end);
    end if;
    ret_code := 200;
    ret_note := format(
        'capture of "%s" into queue "%s": %s', _rel::regclass, i_queue_name, case
            when not _owned then _function else 'mode ' || i_mode end);
end;
$$;
