create or replace function vedur.capture_bulk()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set extra_float_digits = 1
set lc_monetary = 'C'
set row_security = off
as $$
-- Statement trigger that writes all changes of a statement into a queue at once.
--
-- Parameters: queue name, format (json or urlenc). Before and after each statement; after it with
--     transition tables old_rows and new_rows. Made by vedur.create_capture.
-- Returns: NULL.
-- Writes: the queue. Nothing in session role "local".
-- Errors: those of vedur.capture_guard; no such queue; rows updated or deleted without a primary key; two rows
--     with the same key; what pgq.insert_event refuses.
--
-- Events are written after the statement, so a change of the same table from within it (a trigger, a
-- cascade, a function, another branch of MERGE) would be logged first although it came later. The
-- BEFORE trigger counts open statements; while there is more than one, each writes for every key it
-- touched a delete, and an insert of the row as it is now. The last one to do so sees the final row.
-- It reads the table as its owner: row_security is off, so that a policy is an error and hides no row.
declare
    _depth text := format('vedur.bulk_depth_%s', tg_relid);
    _nested text := format('vedur.bulk_nested_%s', tg_relid);
    _open int := coalesce(nullif(current_setting(_depth, true), ''), '0')::int;
    _is_nested boolean := coalesce(current_setting(_nested, true), '') = '1';
    _queries text[];
    _query text;
    _moved boolean := false;
    _deferred boolean := false;
    _q record;
begin
    if current_setting('session_replication_role') = 'local' then
        return null;
    end if;
    if tg_when = 'BEFORE' then
        perform set_config(_depth, (_open + 1)::text, true);
        if _open > 0 then
            perform set_config(_nested, '1', true);
        end if;
        return null;
    end if;
    if tg_op <> 'TRUNCATE' then
        perform set_config(_depth, (_open - 1)::text, true);
        if _open <= 1 then
            perform set_config(_nested, '', true);
        end if;
    end if;

    select * into _q from pgq.queue where queue_name = tg_argv[0];
    if not found then
        raise exception 'No such queue'
            using errcode = 'undefined_object', detail = format('The queue is "%s".', tg_argv[0]);
    end if;
    perform vedur.capture_guard(tg_relid, true);
    if _is_nested then
        perform vedur.capture_read_guard(tg_relid);
    end if;
    if tg_op in ('UPDATE', 'DELETE') and cardinality(vedur.capture_key(tg_relid, null)) = 0 then
        execute 'select exists (select from old_rows)' into _moved;
        if _moved then
            raise exception 'Update/Delete on table without pkey'
                using errcode = 'object_not_in_prerequisite_state', table = tg_table_name, schema = tg_table_schema,
                    hint = format('Add a primary key to "%s.%s".', tg_table_schema, tg_table_name);
        end if;
        return null;
    end if;
    -- The key was made DEFERRABLE after the capture was made: each key is written as it is now, which fails where
    -- two rows share it.
    if tg_op <> 'TRUNCATE' then
        _deferred := vedur.capture_key_deferred(tg_relid, vedur.capture_key(tg_relid, null));
        _is_nested := _is_nested or _deferred;
    end if;
    if tg_op = 'UPDATE' and not _is_nested then
        -- Counted, not asked with exists: for the first row of an answer the planner would take a nested
        -- loop, which is quadratic when no key has moved.
        execute (
            select format(
                'select count(*) > 0 from old_rows as o where not exists (select from new_rows as n where %s)',
                string_agg(format('n.%1$I = o.%1$I', k), ' and '))
            from unnest(vedur.capture_key(tg_relid, null)) as k)
        into _moved;
    end if;
    _queries := vedur.capture_bulk_queries(tg_relid, tg_op, tg_argv[1], tg_argv[0], _is_nested, _moved);
    if _deferred then
        execute (
            select format(
                'select exists (select from %s as t group by %s having count(*) > 1)', tg_relid::regclass, string_agg(format('t.%I', k), ', '))
            from unnest(vedur.capture_key(tg_relid, null)) as k)
        into _moved;
        if _moved then
            raise exception 'table "%": two rows have the same key when its changes are to be written into queue "%"',
                tg_relid::regclass, tg_argv[0]
                using errcode = 'unique_violation',
                    hint = 'The key was made DEFERRABLE after bulk capture: make the capture anew in mode "row".';
        end if;
    end if;
    foreach _query in array _queries loop
        if _q.queue_disable_insert or _q.queue_per_tx_limit is not null then
            execute format(
                'select pgq.insert_event(%L, e.ev_type, e.ev_data, e.ev_extra1, null, null, null)'
                    ' from (%s) as e', tg_argv[0], _query);
        else
            execute format(
                'insert into %s (ev_id, ev_time, ev_type, ev_data, ev_extra1)'
                    ' select nextval(%L), now(), e.ev_type, e.ev_data, e.ev_extra1 from (%s) as e',
                pgq.quote_fqname(_q.queue_data_pfx || '_' || _q.queue_cur_table), pgq.quote_fqname(_q.queue_event_seq), _query);
        end if;
    end loop;
    return null;
end;
$$;

-- Whoever may attach it to a table may write to any queue.
revoke all on function vedur.capture_bulk() from public;
