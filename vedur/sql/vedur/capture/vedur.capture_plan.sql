create or replace function vedur.capture_plan(
    i_relid oid,
    i_when text,
    i_level text,
    i_op text,
    i_format text,
    i_args text[],
    out queue_name text,
    out skip boolean,
    out query text)
language plpgsql
stable
as $$
-- Tell a capture trigger what to do for the change it was fired for.
--
-- Parameters: i_relid, i_when, i_level, i_op - as the TG_ variables; i_format - json, urlenc or sql;
--     i_args - the trigger's arguments.
-- Returns: the queue; whether a BEFORE trigger cancels the change; the query that gives the events, with
--     the new row as $1 and the old row as $2. No query in session role "local".
-- Writes: nothing.
-- Errors: bad arguments; a trigger of the wrong kind; a denied change; no key.
declare
    _a record;
    _name text;
begin
    if i_level <> 'ROW' and i_op <> 'TRUNCATE' then
        raise exception 'pgq Ins/Upd/Del trigger must be fired FOR EACH ROW'
            using errcode = 'trigger_protocol_violated';
    end if;
    select * into _a from vedur.capture_arguments(i_args);
    queue_name := _a.queue_name;
    skip := _a.skip;
    if skip and i_when = 'AFTER' then
        raise exception 'SKIP does not work in AFTER trigger.'
            using errcode = 'trigger_protocol_violated';
    end if;
    if i_op = 'TRUNCATE' and (_a.when_expr is not null or _a.exprs <> '{}') then
        raise exception 'Custom expressions do not make sense for truncater trigger'
            using errcode = 'trigger_protocol_violated';
    end if;
    if current_setting('session_replication_role') = 'local' then
        return;
    end if;
    select n.nspname || '.' || c.relname
    into _name
    from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.oid = i_relid;
    if _a.deny then
        raise exception 'Table ''%'' to queue ''%'': change not allowed (%)', _name, queue_name, i_op
            using errcode = 'read_only_sql_transaction';
    end if;
    if i_op <> 'TRUNCATE' then
        query := vedur.capture_query(i_relid, i_op, i_format, i_args, '($1)', '($2)');
    elsif i_format = 'json' then
        query := format(
            'select %L, ''{}'', %L, null, null, null',
            (select format(
                '{"op":"TRUNCATE","table":[%s,%s],"pkey":[%s]}', to_json(n.nspname), to_json(c.relname),
                (select string_agg(to_json(k)::text, ',' order by u.n)
                 from unnest(vedur.capture_key(i_relid, _a.pkey)) with ordinality as u (k, n)))
             from pg_catalog.pg_class as c
                join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
             where c.oid = i_relid),
            _name);
    else
        query := format('select ''R'', '''', %L, null, null, null', _name);
    end if;
end;
$$;
